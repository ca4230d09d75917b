"""Starts of jobs that become known after the votes, after a restart, or under another rule."""

from __future__ import annotations

import pytest

from nodeguard.fleet.diagnosis.node_evidence import JobStart
from tests.fleet.diagnosis.gangs import FLAP, Gangs, half_a_pod
from tests.fleet.diagnosis.scene import VIEWS, Voters
from tests.policies import diagnosis_policy


def change_rule(fleet: Voters) -> None:
    """Continue after a change of the policy."""
    fleet.diagnosis.set_rule(diagnosis_policy())


def test_jobs_that_are_read_late_end_the_diagnosis_of_a_switch() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    at = fleet.now
    fleet.show(nodes, FLAP)
    fleet.after(20.0)
    assert fleet.degraded == ["fabric/p2"]
    for uid in nodes:
        fleet.starts[uid] = [JobStart("a/gang", at)]
        fleet.diagnosis.voting.touch(uid)
    fleet.look()
    assert fleet.degraded == []
    fleet.after(15.0)
    assert fleet.bad_starts == {"a/gang": len(nodes)}


def test_an_operator_clears_a_bad_start() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    fleet.show(nodes, FLAP)
    fleet.after(15.0)
    fleet.diagnosis.clear("job/a/gang", fleet.now)
    fleet.after(600.0)
    assert (fleet.bad_starts, fleet.degraded) == ({}, [])


def test_another_rule_continues_the_bad_starts() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    fleet.show(nodes, FLAP)
    fleet.after(15.0)
    fleet.diagnosis.set_rule(diagnosis_policy())
    assert fleet.diagnosis.bad_starts.keys() == {"a/gang"}
    fleet.after(1_900.0)
    assert fleet.bad_starts == {}


def test_the_jobs_of_nodes_may_be_known_one_after_the_other() -> None:
    fleet = Gangs()
    gang = fleet.leaf(1, 3, 8)
    fleet.show(gang, FLAP)
    for number in range(0, 8, 2):
        fleet.start(gang[number : number + 2])
        fleet.look()
        fleet.after(1.0)
    fleet.after(60.0)
    assert (fleet.degraded, fleet.bad_starts) == ([], {"a/gang": 8})


def test_more_nodes_of_the_same_job_do_not_interrupt_its_incident_until_their_job_is_known() -> None:
    fleet = Gangs()
    gang = fleet.leaf(1, 3, 8)
    fleet.start(gang[:5])
    fleet.show(gang[:5], FLAP)
    fleet.after(100.0)
    assert fleet.bad_starts == {"a/gang": 5}
    fleet.show(gang[5:], FLAP)
    for _ in range(3):
        fleet.after(1.0)
        assert (fleet.degraded, fleet.bad_starts) == ([], {"a/gang": 5})
    fleet.start(gang[5:])
    fleet.after(60.0)
    assert (fleet.degraded, fleet.bad_starts) == ([], {"a/gang": 8})


def test_after_a_restart_the_jobs_of_old_votes_may_be_known_one_after_the_other() -> None:
    fleet = Gangs()
    gang, began = fleet.leaf(1, 3, 8), fleet.now - 600.0
    for uid in gang:
        fleet.diagnosis.vote(uid, FLAP, VIEWS[FLAP], began, observed=False)
    fleet.look()
    for uid in gang:
        fleet.starts[uid] = [JobStart("a/gang", began - 10.0)]
        fleet.diagnosis.voting.touch(uid)
        fleet.look()
        fleet.after(1.0)
    fleet.after(200.0)
    assert (fleet.degraded, fleet.bad_starts) == ([], {"a/gang": 8})


@pytest.mark.parametrize("is_on_one_leaf", [True, False])
def test_another_rule_does_not_count_a_bad_start_twice(is_on_one_leaf: bool) -> None:
    fleet = Gangs()
    nodes = fleet.leaf(1, 3) if is_on_one_leaf else half_a_pod(fleet)
    fleet.start(nodes)
    fleet.show(nodes, FLAP)
    fleet.after(60.0)
    assert (set(fleet.bad_starts), fleet.degraded) == ({"a/gang"}, [])
    for _ in range(5):
        change_rule(fleet)
        for uid in nodes:
            fleet.diagnosis.vote(uid, FLAP, VIEWS[FLAP], fleet.now - 60.0)
        fleet.after(60.0)
        assert (set(fleet.bad_starts), fleet.degraded, fleet.suppressed) == ({"a/gang"}, [], {})


def test_another_rule_explains_no_votes_of_nodes_without_the_job() -> None:
    fleet = Gangs()
    nodes, leaf = half_a_pod(fleet), fleet.leaf(0, 5)
    fleet.start(nodes)
    started = fleet.now
    fleet.show(nodes, FLAP)
    fleet.after(120.0)
    failed = fleet.now
    fleet.show(leaf, FLAP)
    fleet.after(60.0)
    assert fleet.degraded == ["fabric/p0/l5"]
    change_rule(fleet)
    for uids, at in ((nodes, started), (leaf, failed)):
        for uid in uids:
            fleet.diagnosis.vote(uid, FLAP, VIEWS[FLAP], at)
    fleet.after(60.0)
    assert (fleet.degraded, fleet.bad_starts) == (["fabric/p0/l5"], {"a/gang": len(nodes)})


def test_another_rule_explains_the_votes_of_a_job_that_ended() -> None:
    fleet = Gangs()
    nodes = half_a_pod(fleet)
    fleet.start(nodes)
    at = fleet.now
    fleet.show(nodes, FLAP)
    fleet.after(60.0)
    fleet.starts.clear()
    for _ in range(2):
        change_rule(fleet)
        for uid in nodes:
            fleet.diagnosis.vote(uid, FLAP, VIEWS[FLAP], at)
        fleet.after(60.0)
        assert (fleet.bad_starts, fleet.degraded) == ({"a/gang": len(nodes)}, [])
