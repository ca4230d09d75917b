"""Tests for nodeguard.fleet.diagnosis.degraded_domains: degraded domains with new labels or fault classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodeguard.model.policy import TopologyLabels
from tests.fleet.diagnosis.test_lasting_faults import POLICY, fleet
from tests.fleet.diagnosis.test_suppressed_checks import advance, degraded
from tests.fleet.leaves import fails, well
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import restart
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow


def rename_leaf(made: Fleet) -> None:
    for number in range(16, 24):
        made.change(number, labels={"pod": "p0", "rack": "rack-2"})


def rename_pods(made: Fleet) -> None:
    for number in range(120):
        made.change(number, labels={"pod": f"pod-{number // 40}", "rack": f"r{number // 8}"})


def add_level(made: Fleet) -> None:
    for number in range(120):
        made.change(number, labels={**made.nodes[f"uid-{number}"].labels, "dc": "d1"})
    made.policy = replace(made.policy, topologies=(TopologyLabels("fabric", ("dc", "pod", "rack")),))
    made.planner.set_policy(made.policy)


@pytest.mark.parametrize("change", [rename_leaf, rename_pods, add_level])
@pytest.mark.parametrize("before", ["", "a restart", "a cordon", "a node moves"])
def test_a_faulty_leaf_keeps_its_path_and_its_faulty_nodes_when_the_labels_change(
    change: Callable[[Fleet], None], before: str
) -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 22))
    advance(made, 3 * 3_600.0, 60.0)
    [incident] = [item for item in made.planner.all_incidents() if not item.node]
    if before == "a restart":
        restart(made)
        advance(made, 600.0, 30.0)
    elif before == "a cordon":
        made.change(23, unschedulable=True)
    elif before == "a node moves":
        made.change(23, labels={"pod": "p1", "rack": "r7"})
        advance(made, 120.0)
    change(made)
    advance(made, 3 * 3_600.0, 30.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r2"], list(range(16, 22)))
    [after] = [item for item in made.planner.all_incidents() if not item.node]
    assert (after.name, after.domain, after.occurrences) == (incident.name, "fabric/p0/r2", 1)
    well(made, range(16, 22))
    advance(made, 2_400.0, 30.0)
    assert (degraded(made), made.marked()) == ([], [])


def test_the_nodes_of_a_faulty_leaf_keep_its_mark_while_they_move_one_by_one() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    for number in range(16, 24):
        made.change(number, labels={"pod": "p0", "rack": "rack-2"})
        advance(made, 60.0)
        assert made.marked() == list(range(16, 24))
    assert degraded(made) == ["fabric/p0/r2"]


@pytest.mark.parametrize("racks", [("a", "b"), ("r3", "r3")], ids=["split", "merged"])
def test_the_faulty_nodes_of_a_leaf_that_no_longer_exists_keep_its_mark(racks: tuple[str, str]) -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    for number in range(16, 24):
        made.change(number, labels={"pod": "p0", "rack": racks[number % 2]})
    advance(made, 3_600.0, 30.0)
    assert made.marked() == list(range(16, 24))
    well(made, range(16, 24))
    advance(made, 2_400.0, 30.0)
    assert made.marked() == []


def test_nodes_that_get_other_labels_while_no_aggregator_runs_keep_the_mark_of_their_leaf() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    for number in range(16, 24):
        node = made.nodes[f"uid-{number}"]
        made.nodes[node.uid] = replace(node, labels={"pod": "p0", "rack": "rack-2"})
    restart(made)
    advance(made, 600.0, 30.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r2"], list(range(16, 24)))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_hot_rack_stays_degraded_when_its_fault_class_gets_another_name(is_restarted: bool) -> None:
    hot = finding("gpu-thermal-slowdown", age=0.0, topologies=("rack",))
    topologies = (TopologyLabels("rack", ("row", "rack")),)
    policy = replace(POLICY, topologies=topologies, diagnosis=diagnosis_policy(enforce=("rack",)))
    made = Fleet(0, policy)
    for number in range(320):
        made.add(number, labels={"row": f"w{number // 64}", "rack": f"r{number // 8}"})
    advance(made, 900.0, 60.0)
    for number in range(8):
        made.report(number, hot)
        advance(made, 5.0)
    advance(made, 3 * 3_600.0, 60.0)
    assert degraded(made) == ["rack/w0/r0"]
    names = {"thermal": "heat"}
    classes = (replace(item, name=names.get(item.name, item.name)) for item in made.policy.diagnosis.classes)
    made.policy = replace(policy, diagnosis=replace(policy.diagnosis, classes=tuple(classes)))
    if is_restarted:
        restart(made)
    else:
        made.planner.set_policy(made.policy)
    advance(made, 7_200.0, 30.0)
    assert (degraded(made), made.marked()) == (["rack/w0/r0"], list(range(8)))


def test_a_node_that_moves_away_takes_no_mark_of_its_leaf_along() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 120.0)
    made.change(16, labels={"pod": "p1", "rack": "r7"})
    well(made, (16,))
    advance(made, 120.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r2"], list(range(17, 24)))


def test_a_deleted_node_that_moved_is_no_node_of_its_earlier_leaf() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    made.change(16, labels={"pod": "p1", "rack": "r7"})
    advance(made, 60.0)
    assert len(made.planner.diagnosis.degraded_domains["fabric/p0/r2"].moved) == 1
    made.planner.remove_node("uid-16")
    advance(made, 60.0)
    [leaf] = made.planner.diagnosis.degraded_domains.values()
    assert leaf.moved == ()


def test_a_leaf_with_few_faulty_nodes_keeps_its_incident_while_it_moves() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 20))
    advance(made, 3 * 3_600.0, 60.0)
    [incident] = [item for item in made.planner.all_incidents() if not item.node]
    for number in reversed(range(16, 24)):
        made.change(number, labels={"pod": "p0", "rack": "rack-2"})
        advance(made, 900.0, 30.0)
        assert set(made.marked()) >= set(range(16, 20))
    [leaf] = made.planner.diagnosis.degraded_domains.values()
    assert (leaf.domain, leaf.voters, len(leaf.moved)) == ("fabric/p0/r2", (), 4)
    [after] = [item for item in made.planner.all_incidents() if not item.node]
    assert (after.name, after.occurrences) == (incident.name, 1)


def test_the_findings_of_a_moved_node_stay_part_of_the_incident() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    made.change(16, labels={"pod": "p1", "rack": "r7"})
    advance(made, 600.0, 30.0)
    incidents = {item.node: item for item in made.planner.all_incidents()}
    assert incidents["node-16"].parent == incidents[""].name


def test_the_healthy_nodes_of_a_leaf_that_is_split_are_released() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 20))
    advance(made, 3 * 3_600.0, 60.0)
    for number in range(16, 24):
        made.change(number, labels={"pod": "p0", "rack": f"new-{number % 2}"})
    advance(made, 600.0, 30.0)
    assert made.marked() == [16, 17, 18, 19]


def test_the_fault_stays_in_a_leaf_from_which_the_healthy_nodes_are_moved_away() -> None:
    made = fleet(64, 16, 320, POLICY)
    dead, healthy = list(range(32, 36)), range(36, 48)
    fails(made, dead)
    advance(made, 3 * 3_600.0, 60.0)
    for number in healthy:
        made.change(number, labels={"pod": "p0", "rack": "spare"})
    advance(made, 3_600.0, 30.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r2"], dead)


def test_a_node_that_left_a_degraded_leaf_healthy_is_no_node_of_it_any_more() -> None:
    made = fleet(64, 16, 320, POLICY)
    healthy = range(40, 48)
    fails(made, range(32, 36))
    advance(made, 3 * 3_600.0, 60.0)
    for number in healthy:
        made.change(number, labels={"pod": "p3", "rack": "new"})
    advance(made, 6 * 3_600.0, 120.0)
    fails(made, healthy)
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0/r2", "fabric/p3/new"]


def test_a_pod_stays_degraded_while_its_faulty_leaves_move_first() -> None:
    made = fleet(40, 8, 200, POLICY)
    fails(made, range(24))
    advance(made, 3 * 3_600.0, 60.0)
    for number in range(40):
        made.change(number, labels={"pod": "pod-0", "rack": f"r{number // 8}"})
        advance(made, 30.0, 15.0)
        assert len(degraded(made)) == 1
        assert set(made.marked()) >= set(range(24))
    assert degraded(made) == ["fabric/p0"]


def test_faulty_nodes_keep_the_mark_when_the_aggregator_restarts_before_it_writes_the_new_path() -> None:
    made = fleet(40, 8, 200, POLICY)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    for number in range(16, 24):
        labels = {"pod": "p0", "rack": "rack-2"} if number < 22 else {"pod": "p1", "rack": "r7"}
        made.change(number, labels=labels)
    made.planner.tick(made.now)
    made.plan()
    restart(made)
    for _ in range(20):
        advance(made, 30.0)
        marks = [made.planner.state.marks.observed(f"uid-{number}").records for number in range(16, 24)]
        assert all(mark.node.degraded for mark in marks)
    assert degraded(made) == ["fabric/p0/r2"]


def test_the_evidence_counts_each_node_once() -> None:
    made = fleet(40, 8, 200, POLICY)
    fails(made, range(16, 24))
    advance(made, 900.0)
    for number in (16, 17):
        made.change(number, unschedulable=True)
    for number in range(16, 24):
        made.change(number, labels={"pod": "p0", "rack": f"part-{number % 2}"})
    advance(made, 120.0)
    [decision] = made.planner.domain_marks.decisions.values()
    assert (
        decision.evidence
        == "fabric/p0/r2: 8 of 8 nodes lost a link at once; the other 4 domains of fabric/p0 did not"
    )
    fails(made, sorted(set(range(40)) - set(range(16, 24))))
    advance(made, 300.0)
    [leaf] = made.planner.diagnosis.degraded_domains.values()
    assert (leaf.domain, len(leaf.voters), leaf.size, leaf.moved) == ("fabric/p0", 40, 40, ())
