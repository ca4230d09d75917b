"""What the policy, injected faults, holds and other restraints leave of the drain candidates."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import drain_candidates
from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.fleet.drains import fleet_drain_candidates, node_drain_candidates, node_restraint
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode, DrainRule, DrainWhen
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.node import MAINTENANCE_IN_PROGRESS, MAINTENANCE_PLANNED
from nodeguard.model.policy import Hold, InjectionPolicy, Mode, ModeRule, TopologyLabels
from tests.fleet.act.drained_fleet import DRAINS, EVICT, OTHER, candidates, faulty, only
from tests.fleet.scene import Fleet, finding


def test_a_check_without_a_rule_or_in_a_dry_run_drains_nothing() -> None:
    when_idle = DrainRule(DrainWhen.WHEN_IDLE, check="gpu-lost")
    policy = replace(DRAINS, drain=replace(EVICT, rules=(*EVICT.rules, when_idle)))
    assert candidates(faulty(policy=policy)) == []
    observed = replace(DRAINS, modes=(ModeRule(mode=Mode.OBSERVE, check="gpu-lost"),))
    assert candidates(faulty(policy=observed)) == []
    assert candidates(faulty(policy=replace(DRAINS, drain=replace(EVICT, mode=DrainMode.DISABLED)))) == []


@pytest.mark.parametrize(
    ("rules", "after"),
    [
        ((DrainRule(DrainWhen.DEADLINE, check="gpu-lost", after=600.0),), 600.0),
        ((DrainRule(DrainWhen.DEADLINE, check="gpu-lost"),), 7200.0),
        ((DrainRule(DrainWhen.IMMEDIATELY, check="gpu-lost"),), 0.0),
        (
            (
                DrainRule(DrainWhen.DEADLINE, check="gpu-lost", after=600.0),
                DrainRule(DrainWhen.DEADLINE, check="gpu-ecc", after=60.0),
            ),
            60.0,
        ),
    ],
)
def test_the_shortest_notice_of_the_rules_counts(rules: tuple[DrainRule, ...], after: float) -> None:
    policy = replace(DRAINS, drain=replace(EVICT, rules=rules))
    assert only(faulty(finding(), finding("gpu-ecc"), policy=policy)).after == after


def test_an_injected_fault_drains_nothing_and_a_real_one_beside_it_does() -> None:
    fleet = Fleet(16, replace(DRAINS, injection=InjectionPolicy(allowed=True)))
    fleet.report(0, injected=(finding(),))
    fleet.carry_out()
    assert fleet.marked() == [0]
    assert candidates(fleet) == []
    fleet.after(50.0)
    fleet.report(0, finding(target=OTHER), injected=(finding(),))
    fleet.carry_out()
    assert (only(fleet).resource, only(fleet).since) == (OTHER, fleet.wall)


def test_an_injected_fault_drains_nothing_by_the_mark_of_a_real_one_that_is_not_found_now() -> None:
    fleet = faulty(policy=replace(DRAINS, injection=InjectionPolicy(allowed=True)))
    assert only(fleet).blocker == ""
    fleet.report(0, injected=(finding("gpu-ecc"),), proven=())
    fleet.carry_out()
    assert fleet.marked() == [0], "no check has passed"
    assert candidates(fleet) == []


def test_the_rule_of_one_check_does_not_hide_another_check_of_the_gpu() -> None:
    when_idle = DrainRule(DrainWhen.WHEN_IDLE, check="gpu-lost")
    policy = replace(DRAINS, drain=replace(EVICT, rules=(*EVICT.rules, when_idle)))
    fleet = faulty(finding(), finding("gpu-ecc"), policy=policy)
    assert only(fleet).checks == ("gpu-ecc",)


def test_the_pods_of_a_gang_stay_on_a_node_that_an_operator_or_a_webhook_has() -> None:
    fleet = Fleet(6)
    for number, annotation in ((1, HOLD_ANNOTATION), (2, MAINTENANCE_ANNOTATION)):
        fleet.change(number, annotations={annotation: "why"})
    nodes = fleet.planner.state.nodes
    nodes["uid-3"] = replace(nodes["uid-3"], owner="slinky")
    fleet.change(4, maintenance_conditions=frozenset({MAINTENANCE_PLANNED}))
    names = [f"node-{number}" for number in range(6)]
    assert [node_restraint(fleet.planner, name) for name in (*names, "cpu-1", "")] == [
        "",
        "the node is on hold: why",
        "the node is under maintenance: why",
        "the receiver of webhook slinky decides about its work",
        "maintenance of the node is planned: condition MaintenancePlanned is True",
        "",
        "",
        "",
    ]


def test_a_hold_on_one_check_does_not_hide_another_check_of_the_gpu() -> None:
    fleet = faulty(finding(), finding("gpu-ecc"))
    for check in ("gpu-lost", "gpu-ecc"):
        fleet.planner.set_policy(replace(DRAINS, holds=(Hold(check=check, reason="why"),)))
        assert only(fleet).blocker == ""
    fleet.planner.set_policy(replace(DRAINS, holds=(Hold(checks=("gpu-*",), reason="why"),)))
    assert only(fleet).blocker == "check gpu-ecc is on hold: why"
    fleet.carry_out()
    assert (fleet.marked(), candidates(fleet)) == ([], [])


def test_each_restraint_of_new_marks_blocks_a_drain() -> None:
    def blocker(fleet: Fleet) -> str:
        fleet.carry_out()
        return only(fleet).blocker

    fleet = faulty()
    fleet.planner.paused = "paused by Ann"
    assert blocker(fleet) == "paused by Ann"
    for annotation, reason in (
        (HOLD_ANNOTATION, "the node is on hold: why"),
        (MAINTENANCE_ANNOTATION, "the node is under maintenance: why"),
    ):
        fleet = faulty()
        fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, annotation: "why"})
        assert blocker(fleet) == reason
    for condition, reason in (
        (MAINTENANCE_IN_PROGRESS, "the node is under maintenance: condition MaintenanceInProgress is True"),
        (MAINTENANCE_PLANNED, "maintenance of the node is planned: condition MaintenancePlanned is True"),
    ):
        fleet = faulty()
        fleet.change(0, maintenance_conditions=frozenset({condition}))
        assert blocker(fleet) == reason
    fleet = faulty()
    label = "nvidia.com/gpu-driver-upgrade-state"
    fleet.change(0, labels={**fleet.nodes["uid-0"].labels, label: "pod-deletion-required"})
    assert blocker(fleet) == f"the node is under maintenance: {label} is pod-deletion-required"
    fleet = faulty()
    for _ in range(40):
        fleet.after(30.0, quiet=("uid-0",))
    assert blocker(fleet) == "the node's agent no longer reports"
    fleet = faulty()
    for _ in range(40):
        fleet.after(30.0, quiet=fleet.nodes.keys() - {"uid-0"})
    assert "stale" in blocker(fleet) or "report" in blocker(fleet)


@pytest.mark.parametrize(
    ("degraded", "blocker"),
    [
        ("rack/r0", "its failure domain rack/r0 is degraded"),
        ("fabric/p0", "its failure domain fabric/p0 is degraded"),
        ("rack/r1", ""),
    ],
)
def test_a_degraded_domain_of_the_node_keeps_its_pods(degraded: str, blocker: str) -> None:
    topologies = TopologyLabels("fabric", ("pod",)), TopologyLabels("rack", ("rack",))
    policy = replace(DRAINS, topologies=topologies)
    fleet = Fleet(0, policy)
    for number in range(4):
        fleet.add(number, labels={"rack": f"r{number // 2}", "pod": "p0"})
    fleet.report(0, finding())
    fleet.carry_out()
    state = fleet.planner.state
    [candidate] = drain_candidates(
        policy,
        fleet.planner.tracker.decisions["uid-0"],
        state.placements["uid-0"],
        state.marks_in_effect("uid-0"),
        state.reports["uid-0"],
        lambda _: None,
        {degraded},
    )
    assert candidate.blocker == blocker


def test_a_planned_maintenance_keeps_the_pods_and_forbids_no_mark() -> None:
    fleet = Fleet(16, DRAINS)
    fleet.change(0, maintenance_conditions=frozenset({MAINTENANCE_PLANNED}))
    fleet.report(0, finding())
    fleet.carry_out()
    assert fleet.marked() == [0]
    assert only(fleet).blocker == "maintenance of the node is planned: condition MaintenancePlanned is True"
    fleet.change(0, maintenance_conditions=frozenset())
    assert only(fleet).blocker == ""


def test_a_drain_by_hand_needs_no_rule_but_drains_that_are_enabled() -> None:
    observed = replace(DRAINS, drain=replace(DRAINS.drain, rules=(), mode=DrainMode.OBSERVE))
    fleet = faulty(policy=observed)
    assert candidates(fleet) == []
    [manual] = node_drain_candidates(fleet.planner, "uid-0", fleet.now)
    requested = drain_action(manual, (), fleet.wall, requested_by="alice")
    assert fleet_drain_candidates(fleet.planner, fleet.now, [requested]) == [manual]
    for other in (
        replace(requested, requested_by=""),
        replace(requested, state=ActionState.SUCCEEDED),
        replace(requested, uid="uid-1"),
        replace(requested, request="quarantine of the node"),
    ):
        assert fleet_drain_candidates(fleet.planner, fleet.now, [other]) == []
    fleet.planner.set_policy(replace(observed, drain=replace(observed.drain, mode=DrainMode.DISABLED)))
    assert fleet_drain_candidates(fleet.planner, fleet.now, [requested]) == []


def test_a_drain_by_hand_is_one_candidate_beside_a_rule() -> None:
    fleet = faulty()
    requested = drain_action(only(fleet), (), fleet.wall, requested_by="alice")
    assert fleet_drain_candidates(fleet.planner, fleet.now, [requested]) == [only(fleet)]
