"""Tests for nodeguard.fleet.diagnosis.degraded_domains: faults that last beyond the end of a diagnosis."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.node import Node
from nodeguard.model.policy import Policy, TopologyLabels
from tests.fleet.diagnosis.test_degraded_domains import lost
from tests.fleet.diagnosis.test_suppressed_checks import REAL, advance, degraded
from tests.fleet.leaves import ENFORCED, down, fails, well
from tests.fleet.scene import Fleet, finding, in_order
from tests.fleet.test_restored_suppressions import restart
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow

POLICY = replace(REAL, diagnosis=diagnosis_policy(enforce=("fabric",)))


def fleet(pod: int, leaf: int, size: int, policy: Policy = ENFORCED) -> Fleet:
    """Return a fleet that has run for 20 min. pod, leaf: number of nodes in each."""
    made = Fleet(0, policy)
    for number in range(size):
        made.add(number, labels={"pod": f"p{number // pod}", "rack": f"r{number // leaf}"})
    advance(made, 1_200.0, 60.0)
    return made


# A leaf that stays dead when its pod recovers


@pytest.mark.parametrize(
    ("pod", "leaf"), [(16, 8), (40, 8), (128, 8), (128, 16), pytest.param(256, 32, marks=pytest.mark.slow)]
)
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


def test_nodes_with_an_older_fault_count_for_the_leaf_that_stays_dead_when_its_pod_recovers() -> None:
    made = fleet(40, 8, 120)
    older = replace(down(), target="port/mlx5_1/1", component="mlx5_1")
    for number in (0, 1):
        made.report(number, older)
    advance(made, 86_400.0, 600.0)
    older = replace(older, age=86_400.0)
    for number in range(40):
        made.report(number, down(), *[older] * (number in {0, 1}))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0"]
    well(made, range(4, 40))
    advance(made, 3_600.0, 30.0)
    assert degraded(made) == ["fabric/p0/r0"]


def test_a_leaf_with_flapping_links_stays_degraded_when_its_pod_recovers() -> None:
    made = fleet(40, 8, 120)
    for number in range(40):
        made.report(number, replace(down(), check="port-flap", health=Health.SUSPECT))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0"]
    for number in range(8, 40):
        made.report(number)
    advance(made, 3_600.0, 30.0)
    assert (degraded(made), set(made.marked()) >= set(range(8))) == (["fabric/p0/r0"], True)


@pytest.mark.parametrize(
    ("flapping", "names"),
    [([0, 1, 17, 42], []), ([0, 1, 2, 3, 17], ["fabric/p0/r0"])],
    ids=["two of a leaf", "a whole leaf"],
)
def test_a_few_nodes_that_flap_for_longer_than_their_pod_are_no_leaf(
    flapping: list[int], names: list[str]
) -> None:
    made = fleet(80, 4, 320)
    for number in range(80):
        made.report(number, replace(down(), check="port-flap", health=Health.SUSPECT))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0"]
    well(made, set(range(80)) - set(flapping))
    advance(made, 3_600.0, 30.0)
    assert degraded(made) == names


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


def test_cordoned_leaves_that_stay_dead_keep_their_pod_degraded() -> None:
    made = fleet(40, 8, 400, POLICY)
    fails(made, range(40))
    advance(made, 120.0)
    for number in range(16, 40):
        made.change(number, unschedulable=True)
    well(made, range(16))
    advance(made, 3_600.0, 30.0)
    assert degraded(made) == ["fabric/p0"]


def test_a_cordoned_leaf_that_stays_dead_when_its_pod_recovers_is_degraded() -> None:
    made = fleet(128, 16, 640, POLICY)
    fails(made, range(128))
    advance(made, 120.0)
    well(made, range(16, 128))
    for number in range(16):
        made.change(number, unschedulable=True)
    advance(made, 7_200.0, 60.0)
    for number in range(16):
        made.change(number, unschedulable=False)
    advance(made, 600.0, 30.0)
    assert (degraded(made), made.marked()) == (["fabric/p0/r0"], list(range(16)))


def test_older_faults_of_single_nodes_are_no_part_of_a_pod_that_recovers() -> None:
    made = fleet(128, 8, 640)
    old = [0, 3, 6]
    for number in old:
        made.report(number, down())
        advance(made, 86_400.0, 1_800.0)
    assert (degraded(made), made.marked()) == ([], old)
    others = sorted(set(range(128)) - set(old))
    fails(made, others)
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0"]
    well(made, others)
    advance(made, 3_600.0, 30.0)
    assert (degraded(made), made.marked()) == ([], old)


@pytest.mark.parametrize("agents_return", [False, True])
def test_a_part_that_stays_faulty_is_degraded_for_all_of_its_faults(agents_return: bool) -> None:
    made = fleet(64, 16, 640, POLICY)
    quiet = [f"uid-{number}" for number in range(16, 22)]

    def silence(seconds: float, quiet: list[str]) -> None:
        for _ in range(int(seconds / 15.0)):
            made.after(15.0, quiet)
            made.carry_out(rounds=12)

    silence(300.0, quiet)
    assert degraded(made) == ["fabric/p0/r1"]
    failing = [number for number in range(64) if not 16 <= number < 22]
    fails(made, failing)
    silence(300.0, quiet)
    assert degraded(made) == ["fabric/p0"]
    broken = range(24, 29)
    well(made, set(failing) - set(broken))
    silence(3_600.0, [] if agents_return else quiet)
    assert (degraded(made), made.marked()) == (["fabric/p0/r1"], list(range(16, 32)))
    well(made, broken)
    silence(3_600.0, [] if agents_return else quiet)
    # The other fault lasts.
    assert degraded(made) == ([] if agents_return else ["fabric/p0/r1"])


def test_nodes_without_an_agent_are_no_faulty_part_after_a_restart() -> None:
    made = Fleet(0, POLICY)
    for number in range(640):
        labels = {"pod": f"p{number // 128}", "rack": f"r{number // 8}"}
        made.see(Node(f"node-{number}", f"uid-{number}", labels=labels, gpus=8))
        if not 24 <= number < 32:
            made.report(number)
    made.planner.state.choose_topologies()
    advance(made, 20_000.0, 1_000.0)
    nodes = sorted(set(range(128)) - set(range(24, 32)))
    fails(made, nodes)
    advance(made, 10_000.0, 200.0)
    restart(made)
    advance(made, 120.0)
    well(made, nodes)
    advance(made, 3_600.0, 30.0)
    assert (degraded(made), made.marked()) == ([], [])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_rack_without_power_stays_degraded_when_the_rest_of_its_row_returns(is_restarted: bool) -> None:
    topologies = (*POLICY.topologies, TopologyLabels("power", ("row", "rack")))
    policy = replace(POLICY, topologies=topologies, diagnosis=diagnosis_policy(enforce=("power",)))
    made = Fleet(0, policy)
    for number in range(160):
        made.add(number, labels={"row": f"w{number // 40}", "rack": f"r{number // 8}", "pod": "p0"})
    advance(made, 900.0, 60.0)

    def stop(seconds: float, numbers: range) -> None:
        for _ in range(int(seconds / 15.0)):
            made.after(15.0, [f"uid-{number}" for number in numbers])
            made.carry_out(rounds=12)

    for number in range(40):
        made.change(number, ready=False, not_ready_since=made.now.wall)
    stop(300.0, range(40))
    assert degraded(made) == ["power/w0"]
    if is_restarted:
        for number in range(40):
            del made.reports[f"uid-{number}"]
        restart(made)
        stop(120.0, range(40))
    for number in range(8, 40):
        made.change(number, ready=True)
        made.report(number)
    stop(3_600.0, range(8))
    assert degraded(made) == ["power/w0/r0"]


def test_a_dead_pod_is_the_part_that_stays_when_its_hall_recovers() -> None:
    policy = replace(POLICY, topologies=(TopologyLabels("fabric", ("hall", "pod", "rack")),))
    made = Fleet(0, policy)
    for number in range(768):
        labels = {"hall": f"h{number // 256}", "pod": f"p{number // 64}", "rack": f"r{number // 8}"}
        made.add(number, labels=labels)
    advance(made, 1_200.0, 60.0)
    fails(made, range(256))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/h0"]
    # All leaves of a pod stay dead.
    well(made, range(64, 256))
    advance(made, 7_200.0, 30.0)
    assert degraded(made) == ["fabric/h0/p0"]


def test_few_dead_leaves_are_the_parts_also_with_four_levels() -> None:
    topologies = (TopologyLabels("fabric", ("site", "hall", "pod", "rack")),)
    made = Fleet(0, replace(POLICY, topologies=topologies))
    for number in range(768):
        labels = {"site": f"s{number // 256}", "hall": f"h{number // 128}", "pod": f"p{number // 64}"}
        made.add(number, labels={**labels, "rack": f"r{number // 8}"})
    advance(made, 1_200.0, 60.0)
    fails(made, range(256))
    advance(made, 120.0)
    assert degraded(made) == ["fabric/s0"]
    well(made, range(24, 256))
    advance(made, 2_400.0, 30.0)
    assert degraded(made) == ["fabric/s0/h0/p0/r0", "fabric/s0/h0/p0/r1", "fabric/s0/h0/p0/r2"]


def test_a_part_that_stays_dead_is_degraded_for_its_own_recovery_time() -> None:
    made = fleet(128, 8, 512)
    fails(made, range(128))
    advance(made, 120.0)
    well(made, range(8, 128))
    while degraded(made) != ["fabric/p0/r0"]:
        advance(made, 15.0)
    well(made, range(8))
    advance(made, 1_500.0, 15.0)
    assert degraded(made) == ["fabric/p0/r0"]
    advance(made, 600.0, 15.0)
    assert degraded(made) == []


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


def test_a_rack_with_nodes_that_get_hot_one_after_the_other_is_degraded() -> None:
    hot = finding("gpu-thermal-slowdown", age=0.0, topologies=("rack",), health=Health.SUSPECT)
    policy = replace(POLICY, topologies=(TopologyLabels("rack", ("row", "rack")),))
    made = Fleet(0, policy)
    for number in range(640):
        made.add(number, labels={"row": f"w{number // 128}", "rack": f"r{number // 16}"})
    advance(made, 20_000.0, 1_000.0)
    for number in range(16):
        made.report(number, hot)
        if number >= 2:
            made.report(number - 2, proven=(in_order(), in_order((hot.check,))))
        advance(made, 120.0, 15.0)
    assert degraded(made) == ["rack/w0/r0"]


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


# A pod with most nodes of the fleet


def test_a_large_pod_that_fails_after_one_of_its_leaves_is_no_false_alarm() -> None:
    """The other leaves of the pod have less than 80% of the other nodes of the fleet."""
    made = fleet(48, 6, 64)
    for number in range(42, 46):
        made.report(number, lost())
    advance(made, 120.0)
    assert degraded(made) == ["fabric/p0/r7"]
    for number in (0, 6, 12, 18, 24, 30, 36, 1, 7):
        made.report(number, lost())
        advance(made, 120.0)
        assert not made.planner.diagnosis.suppressed_checks
    assert degraded(made) == ["fabric/p0"]
