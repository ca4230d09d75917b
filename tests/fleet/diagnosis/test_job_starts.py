"""Tests for nodeguard.fleet.diagnosis.job_starts."""

from __future__ import annotations

import pytest

from nodeguard.fleet.diagnosis.node_evidence import JobStart
from tests.fleet.diagnosis.gangs import DOWN, FLAP, Gangs, half_a_pod
from tests.fleet.diagnosis.scene import Voters


def test_a_gang_that_starts_badly_votes_for_no_switch() -> None:
    fleet, without_jobs = Gangs(), Voters()
    nodes = half_a_pod(fleet)
    without_jobs.show(nodes, FLAP, every=0.5)
    without_jobs.after(60.0)
    assert without_jobs.degraded == ["fabric/p2"]
    fleet.start(nodes)
    fleet.show(nodes, FLAP, every=0.5)
    fleet.after(3_000.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {})


def test_the_bad_start_of_a_job_is_reported_until_it_was_quiet_for_the_recovery_time() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    fleet.after(30.0)
    fleet.show(nodes[:20], FLAP)
    assert fleet.bad_starts == {}
    fleet.after(15.0)
    [start] = fleet.diagnosis.bad_starts.values()
    assert (start.job, start.fault_class, start.voters) == ("a/gang", "link", tuple(sorted(nodes[:20])))
    assert start.began - start.started == 30.0
    fleet.after(1_700.0)
    assert fleet.bad_starts == {"a/gang": 20}
    fleet.after(200.0)
    assert (fleet.bad_starts, fleet.degraded) == ({}, [])


def test_a_dead_leaf_under_a_job_that_just_started_is_diagnosed_as_fast_as_without_the_job() -> None:
    fleet = Gangs()
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3), DOWN)
    fleet.after(14.0)
    assert fleet.degraded == []
    fleet.after(1.0)
    assert (fleet.degraded, fleet.bad_starts) == (["fabric/p1/l3"], {})


def test_a_job_on_one_leaf_does_not_hide_a_lasting_fault_of_the_leaf() -> None:
    fleet = Gangs()
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3, 8), FLAP)
    fleet.after(30.0)
    assert (fleet.degraded, fleet.bad_starts) == ([], {"a/gang": 8})
    fleet.show(fleet.leaf(1, 3)[8:], DOWN)
    fleet.after(15.0)
    assert fleet.degraded == ["fabric/p1/l3"]


def test_links_that_are_lost_again_after_the_start_vote_for_the_leaf() -> None:
    fleet = Gangs()
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3, 8), FLAP)
    fleet.after(301.0)
    assert fleet.degraded == []
    fleet.over(fleet.leaf(1, 3), FLAP)
    fleet.show(fleet.leaf(1, 3), FLAP)
    fleet.after(15.0)
    assert fleet.degraded == ["fabric/p1/l3"]


def test_a_leaf_with_other_evidence_keeps_its_votes() -> None:
    fleet = Gangs()
    fleet.show(fleet.leaf(1, 3)[8:10], FLAP)
    fleet.after(120.0)
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3, 8), FLAP)
    fleet.after(15.0)
    assert (fleet.degraded, fleet.bad_starts) == (["fabric/p1/l3"], {})


@pytest.mark.parametrize("late", [-61.0, 301.0])
def test_a_vote_that_is_not_close_to_the_start_is_not_the_jobs(late: float) -> None:
    fleet = Gangs()
    fleet.start(fleet.leaf(1, 3))
    fleet.starts = {uid: [JobStart(start.job, fleet.now - late)] for uid, [start] in fleet.starts.items()}
    fleet.show(fleet.leaf(1, 3), FLAP)
    fleet.after(15.0)
    assert (fleet.degraded, fleet.bad_starts) == (["fabric/p1/l3"], {})


def test_two_nodes_are_no_bad_start() -> None:
    fleet = Gangs()
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3, 2), FLAP)
    fleet.after(60.0)
    assert fleet.bad_starts == {}


def test_a_gang_on_many_leaves_that_restarts_again_and_again_is_a_bad_start_each_time() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    for _ in range(6):
        fleet.over(nodes, FLAP)
        fleet.start(nodes)
        fleet.show(nodes, FLAP)
        fleet.after(60.0)
        assert (fleet.degraded, [*fleet.bad_starts]) == ([], ["a/gang"])
        fleet.after(840.0)


def test_jobs_that_end_leave_their_votes_explained() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    fleet.show(nodes, FLAP)
    fleet.after(10.0)
    fleet.starts.clear()
    fleet.after(3_000.0)
    assert fleet.degraded == []


def test_a_vote_that_counted_for_a_leaf_does_not_become_the_jobs_later() -> None:
    fleet = Gangs()
    fleet.show(fleet.leaf(1, 3)[8:10], FLAP)
    fleet.after(100 * 60.0)
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3, 8), FLAP)
    fleet.after(15.0)
    assert fleet.degraded == ["fabric/p1/l3"]
    fleet.after(1_500.0)
    assert (fleet.degraded, fleet.bad_starts) == (["fabric/p1/l3"], {})


def test_a_job_that_starts_on_a_degraded_leaf_does_not_end_its_diagnosis() -> None:
    fleet = Gangs()
    fleet.show(fleet.leaf(1, 3), FLAP)
    fleet.after(600.0)
    assert fleet.degraded == ["fabric/p1/l3"]
    fleet.over(fleet.leaf(1, 3), FLAP)
    fleet.start(fleet.leaf(1, 3))
    fleet.show(fleet.leaf(1, 3), FLAP)
    fleet.after(60.0)
    assert (fleet.degraded, fleet.bad_starts) == (["fabric/p1/l3"], {})


def test_the_first_vote_of_a_bad_start_stays_when_it_is_over() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    began = fleet.now
    fleet.show(nodes[:4], FLAP)
    fleet.after(60.0)
    fleet.show(nodes[4:], FLAP)
    fleet.after(60.0)
    for uid in nodes[:4]:
        fleet.start([uid], "a/next")
        fleet.show([uid], DOWN)
    fleet.after(60.0)
    start = fleet.diagnosis.bad_starts["a/gang"]
    assert (start.began, start.last) == (began, began + 60.0)
    assert set(start.voters) == set(nodes[4:])


def test_the_bad_start_of_a_job_that_restarts_again_and_again_tells_the_votes_of_all_starts() -> None:
    """A new aggregator does not know the earlier starts."""
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    began = fleet.now
    for first in range(0, 32, 8):
        fleet.start(nodes)
        at = fleet.now
        fleet.show(nodes[first : first + 8], FLAP)
        fleet.after(60.0)
        start = fleet.diagnosis.bad_starts["a/gang"]
        assert (start.began, start.started, start.last) == (began, at, at)
        fleet.over(nodes[first : first + 8], FLAP)
        fleet.after(840.0)


@pytest.mark.parametrize("first", [3, 32])
def test_the_first_votes_of_a_second_start_on_many_leaves_may_be_behind_one(first: int) -> None:
    """first: nodes with the first votes of the first start, too."""
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    fleet.show(nodes[:first], FLAP)
    fleet.after(30.0)
    fleet.show(nodes[first:], FLAP)
    fleet.after(900.0)
    fleet.over(nodes, FLAP)
    fleet.start(nodes)
    fleet.show(nodes[:3], FLAP)
    fleet.after(60.0)
    assert (fleet.degraded, fleet.bad_starts) == ([], {"a/gang": 3})


def test_two_nodes_at_each_further_start_of_a_bad_job_vote_for_no_switch() -> None:
    fleet = Gangs()
    gang = fleet.leaf(2, 0, 8)
    for failing in (gang[:4], gang[4:6], gang[6:]):
        fleet.start(gang)
        fleet.after(20.0)
        fleet.show(failing, FLAP)
        fleet.after(600.0)
    assert (fleet.degraded, set(fleet.bad_starts)) == ([], {"a/gang"})
