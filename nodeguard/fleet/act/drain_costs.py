"""Costs of a drain for the owners of its pods: the Jobs that would fail. Pure.

A Job counts an evicted pod as a failure, unless its podFailurePolicy has another rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nodeguard.model.job import EvictionRule, JobRetries
from nodeguard.model.pod import NodePod


def evicted_by_job(pods: Iterable[NodePod]) -> dict[tuple[str, str], list[NodePod]]:
    """Return the pods of each Job that would be evicted with a set, by namespace and name of the Job."""
    evicted: dict[tuple[str, str], list[NodePod]] = {}
    for pod in pods:
        if pod.batch_job and not pod.is_terminating:
            evicted.setdefault((pod.key.namespace, pod.batch_job), []).append(pod)
    return evicted


def failure_of_job(job: JobRetries, pods: Collection[NodePod]) -> str:
    """Return why a Job or its indexes would fail with the evictions of some of its pods; empty if they would
    go on.
    """
    match job.rule:
        case EvictionRule.IGNORE:
            return ""
        case EvictionRule.FAIL:
            return f"Job {job} would fail: its podFailurePolicy has FailJob for evicted pods"
        case EvictionRule.FAIL_INDEX:
            reason = "its podFailurePolicy has FailIndex for evicted pods"
            return f"{_indexes(pods)} of Job {job} would fail: {reason}"
    failures = job.failed + len(pods)
    if failures > job.limit:
        failed = "failed pod" if failures == 1 else "failed pods"
        return f"Job {job} would fail: {failures} {failed} with the evictions, backoffLimit {job.limit}"
    limit = job.limit_per_index
    failing = [pod for pod in pods if limit is not None and pod.index_failures >= limit]
    return f"{_indexes(failing)} of Job {job} would fail: backoffLimitPerIndex {limit}" if failing else ""


def _indexes(pods: Collection[NodePod]) -> str:
    return f"{len(pods)} {'index' if len(pods) == 1 else 'indexes'}"
