"""Tests for nodeguard.fleet.decide.preemption: a rehearsal never keeps a real fault from its mark."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, MarkRecord
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    InjectionPolicy,
    MarkWrites,
    Mode,
    ModeRule,
    Policy,
    Pool,
    TopologyLabels,
)
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding, in_order

ALLOWED = replace(AT_ONCE, injection=InjectionPolicy(allowed=True))
ONE = replace(ALLOWED, budget=Budget())


def inject(fleet: Fleet, number: int, check: str = "gpu-lost", health: Health = Health.FATAL) -> None:
    fleet.report(number, proven=(in_order(),), injected=(finding(check, age=0.0, health=health),))


def inject_in_turn(fleet: Fleet, count: int) -> None:
    """Inject a fault on one node after the other, every 10 s."""
    for number in range(count):
        inject(fleet, number)
        fleet.carry_out()
        fleet.after(10.0)


def decision(fleet: Fleet, number: int) -> tuple[IncidentState, str]:
    [made] = fleet.planner.tracker.decisions[f"uid-{number}"]
    return made.state, made.reason


def test_a_real_fault_takes_the_budget_of_an_injected_one() -> None:
    fleet = Fleet(20, ONE)
    inject(fleet, 1)
    fleet.carry_out()
    assert fleet.marked() == [1]
    fleet.after(60.0)
    fleet.report(2, finding())
    plan = fleet.plan()
    assert [(node.name, node.taints) for node in plan.nodes] == [("node-1", ())]
    assert [(uid, mark.reason) for uid, mark in plan.released] == [("uid-1", "preempted")]
    reason = "preempted by a real fault: gpu-lost on node-2 needs the fleet budget"
    assert decision(fleet, 1) == (IncidentState.WITHHELD, reason)
    assert decision(fleet, 2) == (
        IncidentState.WITHHELD,
        "fleet budget has reached its limit: 1 of 1 node quarantined; marks of injected faults are removed first",
    )
    [incident] = fleet.planner.tracker.recorded.by_uid["uid-1"].values()
    assert incident.state == IncidentState.MARKED, "until the removal is observed"
    plan = fleet.carry_out()
    [incident] = fleet.planner.tracker.recorded.by_uid["uid-1"].values()
    assert (incident.state, incident.injected) == (IncidentState.WITHHELD, True)
    assert [event.reason for event in plan.events if event.node == "node-1"] == ["NodeguardWithheld"]
    assert (fleet.marked(), fleet.record(1)) == ([2], MarkRecord())
    assert decision(fleet, 1)[0] == IncidentState.WITHHELD
    fleet.after(600.0)
    fleet.carry_out()
    assert fleet.marked() == [2]
    fleet.report(2)
    fleet.carry_out()
    fleet.after(60.0)
    fleet.carry_out()
    assert fleet.marked() == [1]  # no real fault needs the budget any more


def test_a_successor_makes_the_same_decision() -> None:
    fleet = Fleet(20, ONE)
    inject(fleet, 1)
    fleet.carry_out()
    fleet.report(2, finding())
    first = fleet.plan()
    fleet.restart()
    second = fleet.plan()
    assert (second.nodes, second.released) == (first.nodes, first.released)
    fleet.write(first)
    fleet.restart()
    fleet.carry_out()
    assert fleet.marked() == [2]


def test_the_mark_of_an_injected_fault_that_ended_is_preempted_in_its_soak_period() -> None:
    fleet = Fleet(20, replace(ONE, soak=replace(ONE.soak, first=600.0, maximum=600.0)))
    inject(fleet, 1)
    fleet.carry_out()
    fleet.report(1)
    fleet.report(2, finding())
    fleet.carry_out()
    assert fleet.marked() == [2]


def test_only_as_many_marks_are_preempted_as_the_real_fault_needs_the_latest_first() -> None:
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, fleet=0.1)))
    inject_in_turn(fleet, 4)
    fleet.report(9, finding())
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2, 9]


def test_a_mark_of_another_budget_stays() -> None:
    views = (TopologyLabels("rack", ("rack",)),)
    fleet = Fleet(40, replace(ALLOWED, topologies=views, budget=replace(WIDE, domain=0.125)))
    inject(fleet, 0)
    fleet.after(1.0)
    inject(fleet, 8)
    fleet.carry_out()
    fleet.report(1, finding())
    fleet.carry_out()
    assert fleet.marked() == [1, 8]


def test_nothing_is_preempted_where_real_faults_use_another_budget_up() -> None:
    limit = CheckLimit(1, 60.0, 1)
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, fleet=0.05, check=limit)))
    inject(fleet, 0, "gpu-ecc")
    fleet.report(1, finding())
    fleet.carry_out()
    fleet.report(2, finding())
    for _ in range(5):
        plan = fleet.carry_out()
        assert (plan.released, fleet.marked()) == ((), [0, 1])
        fleet.after(30.0)


@pytest.mark.parametrize("limit", [CheckLimit(9, 600.0, 2), CheckLimit(2, 600.0, 9)])
def test_the_budget_of_a_check_is_free_of_injected_faults_at_once(limit: CheckLimit) -> None:
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, check=limit)))
    for number in range(2):
        inject(fleet, number)
    fleet.carry_out()
    assert fleet.marked() == [0, 1]
    for number in (2, 3):
        fleet.report(number, finding())
    fleet.carry_out(5)
    assert fleet.marked() == [2, 3]


def test_a_real_fault_on_a_node_with_an_injected_mark_needs_the_budget_of_its_check() -> None:
    limit = CheckLimit(1, 600.0, 1)
    fleet = Fleet(20, replace(ALLOWED, budget=replace(WIDE, check=limit)))
    inject(fleet, 1, "gpu-ecc")
    fleet.carry_out()
    fleet.report(2, finding())
    fleet.carry_out()
    fleet.after(1.0)
    fleet.report(1, finding(), proven=(in_order(),), injected=(finding("gpu-ecc", age=1.0),))
    fleet.carry_out()
    states = {
        made.request.check: (made.state, made.reason) for made in fleet.planner.tracker.decisions["uid-1"]
    }
    assert states["gpu-lost"] == (
        IncidentState.WITHHELD,
        "budget of check gpu-lost has reached its limit: 1 of 1 active mark",
    )
    assert [cause.check for cause in fleet.record(1).causes] == ["gpu-ecc"]


def test_past_rehearsals_use_no_budget_of_new_marks() -> None:
    limit = CheckLimit(2, 600.0, 9)
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, check=limit)))
    for number in range(2):
        inject(fleet, number)
        fleet.carry_out()
        fleet.report(number)
        fleet.carry_out()
    for number in (2, 3):
        fleet.report(number, finding())
    fleet.carry_out()
    assert fleet.marked() == [2, 3]


def test_an_injected_quarantine_beside_a_real_suspect_mark_is_preempted() -> None:
    fleet = Fleet(20, ONE)
    fleet.report(1, finding("gpu-hot", health=Health.SUSPECT), injected=(finding("gpu-lost", age=0.0),))
    fleet.carry_out()
    assert [cause.injected for cause in fleet.record(1).causes] in ([True], [False, True])
    fleet.report(2, finding())
    fleet.carry_out(6)
    assert fleet.taints(2) == ["nodeguard.dev/quarantine=gpu-bus"]
    assert fleet.taints(1) == ["nodeguard.dev/suspect=gpu-bus"]


def test_the_device_of_an_injected_fault_is_preempted() -> None:
    fleet = Fleet(20, replace(ONE, marks=MarkWrites(device=True)))
    fleet.publish(1)
    inject(fleet, 1)
    fleet.carry_out()
    assert len(fleet.rules) == 1
    fleet.report(2, finding("gpu-hot", "node"))
    fleet.carry_out()
    assert (fleet.rules, fleet.marked()) == ({}, [2])


def test_a_node_on_hold_keeps_its_mark() -> None:
    fleet = Fleet(20, ONE)
    inject(fleet, 1)
    fleet.carry_out()
    fleet.change(1, annotations={**fleet.nodes["uid-1"].annotations, HOLD_ANNOTATION: "work"})
    fleet.report(2, finding())
    plan = fleet.carry_out()
    assert (plan.released, fleet.marked()) == ((), [1])


def carry_out_except(fleet: Fleet, number: int, *, retries: bool) -> None:
    """Carry out plans for some minutes, without the writes of one Node. retries: whether the executor retries
    these writes; else it refuses them.
    """
    uid = f"uid-{number}"
    for _ in range(12):
        plan = fleet.issue()
        fleet.write(replace(plan, nodes=tuple(node for node in plan.nodes if node.uid != uid)))
        if not retries and any(node.uid == uid for node in plan.nodes):
            fleet.planner.record_failed(uid)
        fleet.after(15.0)


@pytest.mark.parametrize("retries", [True, False])
def test_a_node_that_cannot_be_written_does_not_block_the_preemption_of_another(retries: bool) -> None:
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, fleet=0.05)))
    inject_in_turn(fleet, 2)
    fleet.report(9, finding())
    carry_out_except(fleet, 1, retries=retries)
    assert fleet.marked() == [1, 9]
    fleet.report(10, finding())
    carry_out_except(fleet, 1, retries=retries)
    assert fleet.marked() == [1, 9]
    reason = "fleet budget has reached its limit: 2 of 2 nodes marked"
    assert decision(fleet, 10)[1].partition(";")[0] == reason
    fleet.carry_out()
    if retries:  # the executor writes its latest plan for the Node
        fleet.mark(DesiredNode("uid-1", "node-1"))
        fleet.carry_out()
    assert fleet.marked() == [9, 10]


def test_a_device_rule_that_cannot_be_deleted_does_not_block_the_preemption_of_another() -> None:
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, fleet=0.025), marks=MarkWrites(device=True)))
    for number in range(8):
        fleet.publish(number)
        inject(fleet, number)
        fleet.carry_out()
        fleet.after(10.0)
    fleet.publish(9)
    fleet.report(9, finding())
    [stuck_rule] = fleet.plan().rules_gone
    for _ in range(12):
        plan = fleet.issue()
        fleet.write(replace(plan, rules_gone=tuple(name for name in plan.rules_gone if name != stuck_rule)))
        fleet.after(15.0)
    assert stuck_rule in fleet.rules
    assert sorted(rule.node for rule in fleet.rules.values()) == [
        *(f"node-{number}" for number in range(8) if number != 6),
        "node-9",
    ]


def test_a_write_that_takes_some_time_preempts_no_other_mark() -> None:
    fleet = Fleet(40, replace(ALLOWED, budget=replace(WIDE, fleet=0.05)))
    inject_in_turn(fleet, 2)
    fleet.report(9, finding())
    plan = fleet.issue()
    for _ in range(2):
        fleet.after(20.0)
        assert not fleet.plan().nodes
    fleet.write(plan)
    fleet.carry_out()
    assert fleet.marked() == [0, 9]


def test_a_dry_run_reports_that_the_real_fault_would_get_the_budget() -> None:
    fleet = Fleet(20, replace(ONE, modes=(ModeRule(Mode.OBSERVE, checks=("gpu-ecc",)),)))
    inject(fleet, 1)
    fleet.carry_out()
    fleet.report(2, finding("gpu-ecc"))
    plan = fleet.carry_out()
    assert (plan.released, fleet.marked()) == ((), [1])
    assert decision(fleet, 2) == (IncidentState.DRY_RUN, "")


def test_a_dry_run_of_an_injected_fault_keeps_no_budget_from_a_real_one() -> None:
    fleet = Fleet(20, replace(ONE, mode=Mode.OBSERVE))
    inject(fleet, 1)
    fleet.carry_out()
    fleet.after(60.0)
    assert decision(fleet, 1) == (IncidentState.DRY_RUN, "")
    fleet.report(2, finding())
    fleet.carry_out()
    assert decision(fleet, 2) == (IncidentState.DRY_RUN, "")
    assert decision(fleet, 1) == (
        IncidentState.DRY_RUN,
        "fleet budget would reach its limit: 1 of 1 node quarantined",
    )


_FAULTS = st.tuples(
    st.integers(0, 23),
    st.sampled_from(["gpu-lost", "gpu-ecc", "gpu-hot"]),
    st.sampled_from([Health.FATAL, Health.SUSPECT]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["real", "injected", "end"]), _FAULTS), min_size=2, max_size=14),
    st.builds(
        Budget,
        fleet=st.sampled_from([0.05, 0.15, 1.0]),
        reserve=st.sampled_from([0.0, 0.2]),
        pool=st.sampled_from([0.1, 0.25, 1.0]),
        domain=st.sampled_from([0.125, 0.25, 1.0]),
        suspect=st.sampled_from([0.05, 0.15]),
        check=st.sampled_from([CheckLimit(100, 600.0, 2), CheckLimit(100, 600.0, 100)]),
    ),
)
def test_rehearsals_change_no_mark_of_a_real_fault(
    steps: list[tuple[str, tuple[int, str, Health]]], budget: Budget
) -> None:
    """Two fleets have the same real faults, and one has injected ones as well, on other nodes."""
    policy: Policy = replace(
        ALLOWED,
        budget=budget,
        pools=(Pool("a", {"pool": "a"}), Pool("b", {"pool": "b"}, 0.5)),
        topologies=(TopologyLabels("rack", ("rack",)),),
    )
    plain, mixed = Fleet(24, policy), Fleet(24, policy)
    for kind, (number, check, health) in steps:
        for fleet in (plain, mixed):
            fleet.after(10.0)
            if kind == "end":
                fleet.report(number)
            elif kind == "real" and number % 3:
                fleet.report(number, finding(check, health=health, age=0.0))
            elif kind == "injected" and not number % 3 and fleet is mixed:
                inject(fleet, number, check, health)
            fleet.carry_out(12)
        real = {uid: node.taints for uid, node in mixed.nodes.items() if int(uid.removeprefix("uid-")) % 3}
        assert real == {uid: node.taints for uid, node in plain.nodes.items() if uid in real}
        mixed.after(10.0)
        rest = mixed.plan()
        assert (rest.nodes, rest.released) == ((), ())
        plain.after(10.0)
