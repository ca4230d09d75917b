"""Tests for nodeguard.fleet.act.drain_costs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_costs import evictions_of_jobs, failure_of_job
from nodeguard.model.job import EvictionRule, JobRetries
from nodeguard.model.pod import NodePod, PodKey

JOB = JobRetries("team-a", "train", failed=1, limit=3)
POD = NodePod(PodKey("team-a", "train-0", "uid-0"), "1", controller="Job", controller_name="train")


def test_only_pods_of_jobs_that_the_drain_ends_are_counted() -> None:
    elsewhere = replace(POD, key=PodKey("team-b", "train-0", "uid-1"))
    ending, other = replace(POD, is_terminating=True), replace(POD, controller="ReplicaSet")
    counts = evictions_of_jobs([POD, POD, elsewhere, ending, other, replace(POD, controller="")])
    assert counts == {("team-a", "train"): 2, ("team-b", "train"): 1}


@pytest.mark.parametrize(
    ("rule", "evictions", "failure"),
    [
        (EvictionRule.COUNT, 2, ""),
        (
            EvictionRule.COUNT,
            3,
            "Job team-a/train would fail: 4 failed pods with the evictions, backoffLimit 3",
        ),
        (EvictionRule.IGNORE, 100, ""),
        (
            EvictionRule.FAIL,
            1,
            "Job team-a/train would fail: its podFailurePolicy has FailJob for evicted pods",
        ),
    ],
)
def test_a_job_fails_with_more_failures_than_its_limit_or_by_its_rule(
    rule: EvictionRule, evictions: int, failure: str
) -> None:
    assert failure_of_job(replace(JOB, rule=rule), evictions) == failure


def test_one_failed_pod_is_counted_in_the_singular() -> None:
    failure = failure_of_job(replace(JOB, failed=0, limit=0), 1)
    assert failure == "Job team-a/train would fail: 1 failed pod with the evictions, backoffLimit 0"
