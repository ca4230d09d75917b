"""Tests for nodeguard.fleet.diagnosis.degraded_domains: faults that last beyond the end of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodeguard.model.node import Node
from nodeguard.model.policy import Policy, TopologyLabels
from tests.fleet.diagnosis.test_suppressed_checks import (
    REAL,
    advance,
    degraded,
    quiet_fleet,
    scattered,
    suppressed,
)
from tests.fleet.leaves import ENFORCED, down, fails, well
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import restart
from tests.policies import diagnosis_policy

POLICY = replace(REAL, diagnosis=diagnosis_policy(enforce=("fabric",)))


def fleet(pod: int, leaf: int, size: int, policy: Policy = ENFORCED) -> Fleet:
    """Return a fleet that has run for 20 min. pod, leaf: number of nodes in each."""
    made = Fleet(0, policy)
    for number in range(size):
        made.add(number, labels={"pod": f"p{number // pod}", "rack": f"r{number // leaf}"})
    advance(made, 1_200.0, 60.0)
    return made


# A leaf that stays dead when its pod recovers


@pytest.mark.parametrize(("pod", "leaf"), [(16, 8), (40, 8), (128, 8), (128, 16), (256, 32)])
def test_a_leaf_that_stays_dead_when_its_pod_recovers_is_degraded(pod: int, leaf: int) -> None:
    made = fleet(pod, leaf, 3 * pod)
    fails(made, range(pod))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0"]
    well(made, range(leaf, pod))
    for _ in range(65):
        advance(made, 60.0, 15.0)
        assert set(made.marked()) >= set(range(leaf))
    assert (degraded(made), made.marked()) == (["fabric/p0/r0"], list(range(leaf)))
    advance(made, 86_400.0, 600.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r0"], list(range(leaf)))
    well(made, range(leaf))
    advance(made, 8 * 3_600.0, 60.0)
    assert (degraded(made), made.marked()) == ([], [])


def test_a_leaf_that_dies_while_its_pod_recovers_is_degraded() -> None:
    made = fleet(128, 8, 512)
    fails(made, range(128))
    advance(made, 120.0)
    well(made, range(128))
    advance(made, 600.0)
    fails(made, range(32, 40))
    advance(made, 3_600.0, 15.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r4"], list(range(32, 40)))


def test_a_pod_stays_degraded_while_two_of_its_leaves_show_the_fault() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(40))
    advance(made, 120.0)
    well(made, range(16, 40))
    advance(made, 7_200.0, 60.0)
    assert degraded(made) == ["fabric/p0"]


def test_single_nodes_that_stay_faulty_are_marked_when_their_pod_recovers() -> None:
    made = fleet(128, 8, 512)
    fails(made, range(128))
    advance(made, 120.0)
    single = [3, 40, 81]
    well(made, set(range(128)) - set(single))
    advance(made, 3_600.0, 60.0)
    assert (degraded(made), made.marked()) == ([], single)


def test_a_leaf_that_stays_dead_is_no_new_domain_of_the_budget() -> None:
    policy = replace(ENFORCED, budget=replace(ENFORCED.budget, domains=1))
    made = fleet(40, 8, 120, policy)
    fails(made, range(40))
    advance(made, 120.0)
    well(made, range(8, 40))
    advance(made, 2_400.0, 15.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r0"], list(range(8)))


def test_an_operators_clear_of_a_pod_leaves_no_leaf_degraded() -> None:
    made = fleet(40, 8, 120)
    fails(made, range(40))
    advance(made, 120.0)
    well(made, range(8, 40))
    [incident] = [item for item in made.planner.all_incidents() if not item.node and item.is_open]
    made.planner.clear(incident, made.now)
    advance(made, 300.0)
    assert degraded(made) == []


# A leaf that dies while its check is suppressed


@pytest.mark.parametrize("is_repaired", [True, False])
def test_a_leaf_that_dies_while_its_check_is_suppressed_is_degraded(is_repaired: bool) -> None:
    made = quiet_fleet(800, POLICY, history=20_000.0)
    alarm = [number for number in scattered(made, 60) if not 16 <= number < 24][:5]
    fails(made, alarm)
    advance(made, 60.0)
    assert suppressed(made) == {"port-down"}
    if is_repaired:
        well(made, alarm)
    advance(made, 600.0)
    fails(made, range(16, 24))
    advance(made, 60.0)
    assert degraded(made) == ["fabric/p0/r2"]
    advance(made, 50_000.0, 100.0)
    assert degraded(made) == ["fabric/p0/r2"]
    assert set(made.marked()) >= set(range(16, 24))
    # Neither the suppression nor its end covers the nodes of the leaf.
    well(made, range(16, 24))
    advance(made, 7_200.0, 60.0)
    fails(made, (16,))
    advance(made, 120.0)
    assert 16 in made.marked()


@pytest.mark.parametrize("every", [2.0, 30.0])
def test_a_false_alarm_that_spreads_while_it_is_suppressed_degrades_no_leaf(every: float) -> None:
    made = quiet_fleet(400, POLICY, history=20_000.0)
    for number in scattered(made, 400):
        made.report(number, down())
        advance(made, every, every)
        assert degraded(made) == []
    assert suppressed(made) == {"port-down"}


# A faulty leaf of which the path or the fault class changes


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


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (rename_leaf, "fabric/p0/rack-2"),
        (rename_pods, "fabric/pod-0/r2"),
        (add_level, "fabric/d1/p0/r2"),
    ],
)
def test_a_faulty_leaf_stays_degraded_when_its_path_changes(
    change: Callable[[Fleet], None], path: str
) -> None:
    made = fleet(40, 8, 120)
    fails(made, range(16, 24))
    advance(made, 3 * 3_600.0, 60.0)
    [before] = [item for item in made.planner.all_incidents() if not item.node]
    change(made)
    advance(made, 3 * 3_600.0, 30.0)
    assert (degraded(made), made.marked()) == ([path], list(range(16, 24)))
    [after] = [item for item in made.planner.all_incidents() if not item.node]
    assert (after.name, after.domain, after.occurrences) == (before.name, path, 1)
    well(made, range(16, 24))
    advance(made, 2_400.0, 30.0)
    assert (degraded(made), made.marked()) == ([], [])


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


# Faults that ended before the diagnosis


def test_a_rack_of_which_the_agents_return_within_a_minute_is_not_degraded() -> None:
    topologies = (*POLICY.topologies, TopologyLabels("power", ("row", "rack")))
    policy = replace(POLICY, topologies=topologies, diagnosis=diagnosis_policy(enforce=("power",)))
    made = Fleet(0, policy)
    for number in range(160):
        row = f"w{number // 40}"
        made.add(number, labels={"pod": row, "row": row, "rack": f"r{number // 8}"})
    advance(made, 900.0, 60.0)
    for _ in range(10):
        made.after(5.0, [f"uid-{number}" for number in range(8)])
        made.carry_out()
    for _ in range(60):
        advance(made, 5.0)
        assert degraded(made) == []


def test_nodes_without_an_agent_do_not_keep_a_repaired_leaf_degraded() -> None:
    made = Fleet(0, POLICY)
    for number in range(80):
        labels = {"pod": f"p{number // 40}", "rack": f"r{number // 8}"}
        made.see(Node(f"node-{number}", f"uid-{number}", labels=labels, gpus=8))
        if number not in (6, 7):
            made.report(number)
    made.planner.state.choose_topologies()
    advance(made, 900.0, 60.0)
    fails(made, range(6))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0/r0"]
    well(made, range(6))
    advance(made, 2_400.0, 30.0)
    assert (degraded(made), made.marked()) == ([], [])
