"""The decision on each mark request, and what is reported of it: granted, withheld, pending or a dry run."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.plan import Plan
from nodeguard.fleet_api.incident import listed
from nodeguard.fleet_api.service_state import Service
from nodeguard.fleet_api.status import status
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Budget, GracePeriods, Mode, ModeRule, Policy, TopologyLabels
from nodeguard.wire.report import VERSION, Report, ReportedFinding
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding

LEADER = Service("replica-0", leads=True, started=9_000.0)
WAITS = replace(AT_ONCE, settle=GracePeriods(30.0, 60.0, 90.0))
WAITS_A_MINUTE = replace(AT_ONCE, settle=GracePeriods(60.0, 60.0, 60.0))


def decisions(fleet: Fleet) -> list[MarkDecision]:
    return [one for found in fleet.planner.decisions.values() for one in found]


def run(fleet: Fleet, seconds: float) -> list[Plan]:
    """Plan and carry out for some seconds, once a second; return the plans."""
    plans = []
    for _ in range(int(seconds)):
        plans.append(fleet.carry_out())
        fleet.after(1.0)
    return plans


def reported(plans: list[Plan]) -> list[Any]:
    return [one for plan in plans for one in (*plan.incidents, *plan.events)]


def test_a_fault_that_ends_within_its_grace_period_leaves_no_event_and_no_incident() -> None:
    fleet = Fleet(3, WAITS)
    fleet.say(0, finding(age=0.0))
    plans = run(fleet, 10.0)
    assert {one.state for one in decisions(fleet)} == {IncidentState.PENDING}
    fleet.say(0)
    plans += run(fleet, 60.0)
    assert reported(plans) == []
    assert (fleet.planner.incidents, fleet.planner.pending) == ({}, {})
    [over] = [one for plan in plans for one in plan.transient_incidents]
    assert (over.state, over.cause, over.occurrences) == (IncidentState.RESOLVED, "gpu-lost", 1)


def test_the_same_in_observe_mode() -> None:
    fleet = Fleet(3, replace(WAITS, mode=Mode.OBSERVE))
    fleet.say(0, finding(age=0.0))
    plans = run(fleet, 10.0)
    fleet.say(0)
    assert reported(plans + run(fleet, 60.0)) == []


def test_a_fault_of_shared_hardware_waits_longer_and_leaves_no_trace_either() -> None:
    fleet = Fleet(3, replace(WAITS, views=(TopologyLabels("rack", ("rack",)),)))
    fleet.say(0, finding(age=0.0, views=("rack",)))
    plans = run(fleet, 80.0)
    assert {one.state for one in decisions(fleet)} == {IncidentState.PENDING}
    fleet.say(0)
    assert reported(plans + run(fleet, 60.0)) == []


def test_a_pending_mark_is_shown_with_the_time_left_and_is_not_withheld() -> None:
    fleet = Fleet(3, WAITS)
    fleet.say(0, finding(age=0.0))
    run(fleet, 10.0)
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.pending.marks, told.pending_left, told.withheld.marks, told.reasons) == (1, 20.0, 0, ())
    assert (told.incidents[IncidentState.PENDING], told.incidents[IncidentState.WITHHELD]) == (1, 0)
    [line] = listed(fleet.planner, LEADER, fleet.now).incidents
    assert (line.state, line.left) == (IncidentState.PENDING, 20.0)
    [line] = listed(fleet.planner, LEADER, fleet.now, {IncidentState.PENDING}, "node-0").incidents
    assert line.node == "node-0"


def late(fleet: Fleet, number: int, *findings: ReportedFinding, age: float = 30.0) -> None:
    """A report that the node's agent could send only some time after its verdict."""
    report = Report(
        version=VERSION, node=f"node-{number}", boot_id="b", sequence=2, health=Health.FATAL,
        data_status=DataStatus.FRESH, findings=findings, age=age,
    )  # fmt: skip
    fleet.planner.record_report(f"uid-{number}", report, fleet.now)


def test_a_late_report_of_a_short_fault_leaves_no_event_and_no_incident() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    late(fleet, 0, finding(age=2.0))
    plans = [fleet.plan()]
    [incident] = fleet.planner.pending["uid-0"].values()
    assert (incident.state, decisions(fleet)) == (IncidentState.PENDING, [])
    [line] = listed(fleet.planner, LEADER, fleet.now).incidents
    assert (line.state, line.left) == (IncidentState.PENDING, 28.0)
    fleet.say(0)
    plans += run(fleet, 60.0)
    assert reported(plans) == []
    assert [one.cause for plan in plans for one in plan.transient_incidents] == ["gpu-lost"]


def test_a_short_fault_that_is_not_known_to_last_leaves_no_event_and_no_incident() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    for knowledge in (DataStatus.STALE, DataStatus.UNKNOWN):
        fleet.say(0, finding(age=2.0, knowledge=knowledge))
        plans = run(fleet, 10.0)
        fleet.say(0)
        assert reported(plans + run(fleet, 60.0)) == []


def test_a_fault_that_is_not_known_to_last_is_reported_after_its_grace_period() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    fleet.say(0, finding(age=2.0, knowledge=DataStatus.STALE))
    assert reported(run(fleet, 57.0)) == []
    plans = run(fleet, 5.0)
    assert [one.reason for plan in plans for one in plan.events] == ["NodeguardFinding"]
    assert [one.state for plan in plans for one in plan.incidents] == [IncidentState.OPEN]
    assert fleet.planner.pending == {}


def test_an_old_fault_that_is_not_fresh_is_reported_though_another_one_is_new() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    old = finding("gpu-ecc", age=600.0, knowledge=DataStatus.STALE)
    fleet.say(0, old, finding(age=2.0, knowledge=DataStatus.STALE))
    assert [one.state for one in fleet.carry_out().incidents] == [IncidentState.OPEN]


def test_a_late_report_that_the_node_confirms_asks_for_its_mark() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    late(fleet, 0, finding(age=2.0))
    assert reported([fleet.carry_out()]) == []
    fleet.after(1.0)
    fleet.carry_out()
    assert [one.state for one in decisions(fleet)] == [IncidentState.PENDING]
    plans = run(fleet, 40.0)
    assert [one.reason for plan in plans for one in plan.events] == ["NodeguardMarked"]


def test_each_short_fault_of_a_slot_comes_into_the_history() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0)
    run(fleet, 2.0)
    assert [one.state for one in fleet.planner.incidents["uid-0"].values()] == [IncidentState.RESOLVED]
    for _ in range(2):
        fleet.say(0, finding(age=2.0))
        plans = run(fleet, 5.0)
        fleet.say(0)
        plans += run(fleet, 5.0)
        assert reported(plans) == []
        assert [one.state for plan in plans for one in plan.transient_incidents] == [IncidentState.RESOLVED]


def test_a_pending_incident_is_found_by_its_name_until_its_grace_period_ends() -> None:
    fleet = Fleet(3, WAITS)
    fleet.say(0, finding(age=0.0))
    run(fleet, 10.0)
    [(name, incident)] = fleet.planner.pending["uid-0"].items()
    assert fleet.planner.pending_incident(name) is incident
    assert fleet.planner.pending_incident("node-0-other") is None
    assert fleet.planner.incident(name) is None
    run(fleet, 30.0)
    assert fleet.planner.pending_incident(name) is None
    assert fleet.planner.incident(name) is not None


def test_a_pause_withholds_a_mark_only_when_its_grace_period_is_over() -> None:
    fleet = Fleet(3, WAITS)
    fleet.planner.paused = "paused by alice: a bad driver"
    fleet.say(0, finding(age=0.0))
    run(fleet, 10.0)
    assert [(one.state, one.reason) for one in decisions(fleet)] == [(IncidentState.PENDING, "")]
    run(fleet, 30.0)
    assert [(one.state, one.reason) for one in decisions(fleet)] == [
        (IncidentState.WITHHELD, "paused by alice: a bad driver")
    ]


def test_a_pending_fault_leaves_an_open_incident_of_the_same_part_as_it_is() -> None:
    fleet = Fleet(3, WAITS)
    fleet.say(0, finding("gpu-hot", health=Health.WARNING))
    [opened] = fleet.carry_out().incidents
    fleet.say(0, finding("gpu-hot", health=Health.WARNING), finding(age=0.0))
    plans = run(fleet, 10.0)
    [line] = listed(fleet.planner, LEADER, fleet.now).incidents
    assert (line.name, line.state, line.cause) == (opened.name, IncidentState.PENDING, "gpu-lost")
    fleet.say(0, finding("gpu-hot", health=Health.WARNING))
    assert reported(plans + run(fleet, 5.0)) == []
    assert listed(fleet.planner, LEADER, fleet.now).incidents[0].state == IncidentState.OPEN


def test_a_mark_that_stands_is_not_pending_for_another_fault_of_the_part() -> None:
    fleet = Fleet(3, WAITS)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0, finding(), finding("gpu-ecc", age=0.0))
    fleet.carry_out()
    assert [one.state for one in listed(fleet.planner, LEADER, fleet.now).incidents] == [IncidentState.MARKED]


def test_a_mark_that_is_released_ends_its_incident_though_another_fault_is_pending() -> None:
    fleet = Fleet(3, WAITS)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(0, finding("gpu-ecc", age=0.0), proven=fleet.reports["uid-1"].passing)
    plans = run(fleet, 5.0)
    assert fleet.marked() == []
    assert [one.state for plan in plans for one in plan.incidents] == [IncidentState.RESOLVED]
    assert [one.state for one in listed(fleet.planner, LEADER, fleet.now).incidents] == [
        IncidentState.PENDING
    ]


def test_in_observe_mode_each_request_is_a_dry_run_with_what_would_withhold_it() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE, budget=Budget()))
    for number in range(3):
        fleet.say(number, finding())
    plan = fleet.carry_out()
    assert {one.state for one in decisions(fleet)} == {IncidentState.DRY_RUN}
    full = "fleet budget would be used up: 1 of 1 nodes quarantined"
    assert sorted(one.reason for one in decisions(fleet)) == ["", full, full]
    assert sorted(one.detail for one in plan.incidents) == [
        f"would not quarantine node node-1: {full}",
        f"would not quarantine node node-2: {full}",
        "would quarantine node node-0",
    ]
    assert {one.reason for one in plan.events} == {"NodeguardDryRun"}
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.withheld.marks, told.would.marks, told.policy.observes) == (0, 3, True)
    assert (told.dry_run.nodes, told.dry_run.within, told.dry_run.over) == (3, 1, 2)
    assert [one.why for one in told.dry_run.limits] == ["fleet budget 1 node"]


def test_a_hold_or_a_pause_in_observe_mode_is_what_would_withhold_the_mark() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.change(0, annotations={HOLD_ANNOTATION: "alice"})
    for number in range(2):
        fleet.say(number, finding())
    fleet.carry_out()
    assert sorted((one.state, one.reason) for one in decisions(fleet)) == [
        (IncidentState.DRY_RUN, ""),
        (IncidentState.DRY_RUN, "hold on the node: alice"),
    ]
    told = status(fleet.planner, LEADER, fleet.now).dry_run
    assert (told.within, told.over, told.other) == (1, 0, 1)


def test_a_check_that_is_not_enforced_is_a_dry_run_beside_one_that_is() -> None:
    rules = (ModeRule(("gpu-lost",), Mode.ENFORCE),)
    fleet = Fleet(20, replace(AT_ONCE, mode=Mode.OBSERVE, modes=rules, budget=replace(WIDE, fleet=0.05)))
    fleet.say(0, finding())
    fleet.say(1, finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.say(2, finding("gpu-ecc"))
    fleet.carry_out()
    assert {one.request.check: one.state for one in decisions(fleet)} == {
        "gpu-lost": IncidentState.MARKED,
        "port-down": IncidentState.DRY_RUN,
        "gpu-ecc": IncidentState.DRY_RUN,
    }
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.policy.observes, told.policy.enforced, told.policy.observed) == (False, ("gpu-lost",), ())
    assert (told.dry_run.nodes, told.dry_run.suspect, told.withheld.marks) == (1, 1, 0)


def test_without_a_cluster_a_mark_that_is_granted_is_advised() -> None:
    fleet = Fleet(3)
    fleet.restart(IncidentState.ADVISED)
    fleet.say(0, finding())
    plan = fleet.carry_out()
    assert [one.state for one in plan.incidents] == [IncidentState.ADVISED]
    assert {one.state for one in decisions(fleet)} == {IncidentState.ADVISED}


def test_a_used_amount_that_changes_is_no_change_of_an_incident() -> None:
    """A GPU that is marked beside changes the used amount of the budget, not why the others are withheld."""
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(2)
    fleet.say(0, finding())
    fleet.carry_out()
    fleet.say(2, finding("gpu-ecc", "gpu/0000:3c:00", part="GPU-1"))
    fleet.carry_out()
    fleet.say(1, finding("port-down", "port/mlx5_0/1"))
    fleet.carry_out()
    [line] = listed(fleet.planner, LEADER, fleet.now, {IncidentState.WITHHELD}).incidents
    assert line.says == "fleet budget used up: 1.125 of 2 nodes marked"
    fleet.say(2, finding("gpu-ecc", "gpu/0000:3c:00"), finding("gpu-ecc", "gpu/0000:3d:00", part="GPU-2"))
    plan = fleet.carry_out()
    assert {one.node for one in plan.incidents} | {one.node for one in plan.events} <= {"node-2"}
    [line] = listed(fleet.planner, LEADER, fleet.now, {IncidentState.WITHHELD}).incidents
    assert line.says == "fleet budget used up: 1.25 of 2 nodes marked"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["gpu-lost", "gpu-ecc"]), st.floats(0.0, 200.0)),
        max_size=8,
        unique_by=lambda one: one[0],
    ),
    st.sampled_from([Mode.OBSERVE, Mode.ENFORCE]),
    st.sampled_from([(), (ModeRule(("gpu-lost",), Mode.ENFORCE),), (ModeRule(("gpu-*",), Mode.OBSERVE),)]),
    st.booleans(),
)
def test_only_what_is_enforced_is_granted_or_withheld(
    faults: list[tuple[int, str, float]], mode: Mode, modes: tuple[ModeRule, ...], paused: bool
) -> None:
    policy = Policy(mode=mode, modes=modes, grace=GracePeriods(60.0, 60.0, 60.0))
    fleet = Fleet(6, policy)
    fleet.planner.paused = "paused by alice" if paused else ""
    for number, check, age in faults:
        fleet.say(number, finding(check, age=age))
    fleet.carry_out()
    for one in decisions(fleet):
        rules = [rule.mode for rule in modes if one.request.check == "gpu-lost" or rule.checks == ("gpu-*",)]
        enforced = (rules[-1] if rules else mode) == Mode.ENFORCE
        if fleet.wall - one.request.since < 60.0:
            assert one.state == IncidentState.PENDING
            assert one.until == one.request.since + 60.0
        elif enforced:
            assert one.state in {IncidentState.MARKED, IncidentState.WITHHELD}
            assert (one.state == IncidentState.WITHHELD) == bool(one.reason)
        else:
            assert one.state == IncidentState.DRY_RUN
