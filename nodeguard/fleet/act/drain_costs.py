"""Costs of a drain for the owners of its pods: the Jobs that would fail. Pure.

A Job counts an evicted pod as a failure, unless its podFailurePolicy has another rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nodeguard.model.job import EvictionRule, JobRetries
from nodeguard.model.pod import NodePod


def evictions_of_jobs(pods: Iterable[NodePod]) -> Counter[tuple[str, str]]:
    """Return how many pods of each Job would be evicted with a set, by namespace and name of the Job."""
    return Counter(
        (pod.key.namespace, pod.controller_name)
        for pod in pods
        if pod.controller == "Job" and not pod.is_terminating
    )


def failure_of_job(job: JobRetries, evictions: int) -> str:
    """Return why a Job would fail with some evictions of its pods; empty if it would go on."""
    match job.rule:
        case EvictionRule.IGNORE:
            return ""
        case EvictionRule.FAIL:
            return f"Job {job} would fail: its podFailurePolicy has FailJob for evicted pods"
    failures = job.failed + evictions
    if failures <= job.limit:
        return ""
    pods = "failed pod" if failures == 1 else "failed pods"
    return f"Job {job} would fail: {failures} {pods} with the evictions, backoffLimit {job.limit}"
