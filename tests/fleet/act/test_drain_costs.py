"""Tests for nodeguard.fleet.act.drain_costs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_costs import evicted_by_job, failure_of_job
from nodeguard.model.job import EvictionRule, JobRetries
from nodeguard.model.pod import NodePod, PodKey

JOB = JobRetries("team-a", "train", failed=1, limit=3)
POD = NodePod(PodKey("team-a", "train-0", "uid-0"), "1", controller="Job", batch_job="train")


def test_only_pods_of_jobs_that_the_drain_ends_are_counted() -> None:
    elsewhere = replace(POD, key=PodKey("team-b", "train-0", "uid-1"))
    ending, other = replace(POD, is_terminating=True), replace(POD, controller="ReplicaSet", batch_job="")
    evicted = evicted_by_job([POD, POD, elsewhere, ending, other])
    assert evicted == {("team-a", "train"): [POD, POD], ("team-b", "train"): [elsewhere]}


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
    assert failure_of_job(replace(JOB, rule=rule), [POD] * evictions) == failure


def test_one_failed_pod_is_counted_in_the_singular() -> None:
    failure = failure_of_job(replace(JOB, failed=0, limit=0), [POD])
    assert failure == "Job team-a/train would fail: 1 failed pod with the evictions, backoffLimit 0"


@pytest.mark.parametrize(
    ("rule", "failures", "failure"),
    [
        (EvictionRule.COUNT, (0, 1), ""),
        (EvictionRule.COUNT, (2, 1), "1 index of Job team-a/train would fail: backoffLimitPerIndex 2"),
        (EvictionRule.COUNT, (2, 3), "2 indexes of Job team-a/train would fail: backoffLimitPerIndex 2"),
        (EvictionRule.IGNORE, (2,), ""),
        (
            EvictionRule.FAIL_INDEX,
            (0,),
            "1 index of Job team-a/train would fail: its podFailurePolicy has FailIndex for evicted pods",
        ),
    ],
)
def test_an_index_fails_with_more_failures_than_its_limit_or_by_the_rule(
    rule: EvictionRule, failures: tuple[int, ...], failure: str
) -> None:
    job = replace(JOB, limit=2_147_483_647, limit_per_index=2, rule=rule)
    assert failure_of_job(job, [replace(POD, index_failures=count) for count in failures]) == failure
