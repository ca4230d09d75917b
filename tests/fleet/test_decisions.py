"""The decision on each mark request, and what is reported of it: granted, withheld, pending or a dry run."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet_api.incident import list_incidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Budget, GracePeriods, MarkWrites, Mode, ModeRule, Policy, TopologyLabels
from nodeguard.wire.report import VERSION, Report, ReportedFinding
from tests.fleet.cluster_planner import ClusterPlan
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0)
WAITS = replace(AT_ONCE, grace=GracePeriods(30.0, 60.0, 90.0))
WAITS_A_MINUTE = replace(AT_ONCE, grace=GracePeriods(60.0, 60.0, 60.0))


def decisions(fleet: Fleet) -> list[MarkDecision]:
    return [decision for found in fleet.planner.decisions.values() for decision in found]


def run(fleet: Fleet, seconds: float) -> list[ClusterPlan]:
    """Plan and carry out for some seconds, once a second; return the plans."""
    plans = []
    for _ in range(int(seconds)):
        plans.append(fleet.carry_out())
        fleet.after(1.0)
    return plans


def reported(plans: list[ClusterPlan]) -> list[Any]:
    return [event for plan in plans for event in (*plan.incidents, *plan.events)]


def test_a_fault_that_ends_within_its_grace_period_leaves_no_event_and_no_incident() -> None:
    fleet = Fleet(3, WAITS)
    fleet.report(0, finding(age=0.0))
    plans = run(fleet, 10.0)
    assert {decision.state for decision in decisions(fleet)} == {IncidentState.PENDING}
    fleet.report(0)
    plans += run(fleet, 60.0)
    assert reported(plans) == []
    assert (fleet.planner.incidents, fleet.planner.pending) == ({}, {})
    [over] = [incident for plan in plans for incident in plan.transient_incidents]
    assert (over.state, over.cause, over.occurrences) == (IncidentState.RESOLVED, "gpu-lost", 1)


def test_the_same_in_observe_mode() -> None:
    fleet = Fleet(3, replace(WAITS, mode=Mode.OBSERVE))
    fleet.report(0, finding(age=0.0))
    plans = run(fleet, 10.0)
    fleet.report(0)
    assert reported(plans + run(fleet, 60.0)) == []


def test_a_fault_of_shared_hardware_waits_longer_and_leaves_no_trace_either() -> None:
    fleet = Fleet(3, replace(WAITS, topologies=(TopologyLabels("rack", ("rack",)),)))
    fleet.report(0, finding(age=0.0, topologies=("rack",)))
    plans = run(fleet, 80.0)
    assert {decision.state for decision in decisions(fleet)} == {IncidentState.PENDING}
    fleet.report(0)
    assert reported(plans + run(fleet, 60.0)) == []


def test_a_pending_mark_is_shown_with_the_time_left_and_is_not_withheld() -> None:
    fleet = Fleet(3, WAITS)
    fleet.report(0, finding(age=0.0))
    run(fleet, 10.0)
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (
        status.pending.marks,
        status.pending_seconds_left,
        status.withheld.marks,
        status.reasons,
    ) == (
        1,
        20.0,
        0,
        (),
    )
    assert (status.incidents[IncidentState.PENDING], status.incidents[IncidentState.WITHHELD]) == (1, 0)
    [line] = list_incidents(fleet.planner, LEADER, fleet.now).incidents
    assert (line.state, line.seconds_left) == (IncidentState.PENDING, 20.0)
    [line] = list_incidents(fleet.planner, LEADER, fleet.now, {IncidentState.PENDING}, "node-0").incidents
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
    [line] = list_incidents(fleet.planner, LEADER, fleet.now).incidents
    assert (line.state, line.seconds_left) == (IncidentState.PENDING, 28.0)
    fleet.report(0)
    plans += run(fleet, 60.0)
    assert reported(plans) == []
    assert [incident.cause for plan in plans for incident in plan.transient_incidents] == ["gpu-lost"]


def test_a_short_fault_that_is_not_known_to_last_leaves_no_event_and_no_incident() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    for status in (DataStatus.STALE, DataStatus.UNKNOWN):
        fleet.report(0, finding(age=2.0, data_status=status))
        plans = run(fleet, 10.0)
        fleet.report(0)
        assert reported(plans + run(fleet, 60.0)) == []


def test_an_unconfirmed_fault_is_reported_after_its_grace_period() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    fleet.report(0, finding(age=2.0, data_status=DataStatus.STALE))
    assert reported(run(fleet, 57.0)) == []
    plans = run(fleet, 5.0)
    assert [event.reason for plan in plans for event in plan.events] == ["NodeguardFinding"]
    assert [incident.state for plan in plans for incident in plan.incidents] == [IncidentState.OPEN]
    assert fleet.planner.pending == {}


def test_an_old_stale_fault_is_reported_beside_a_new_one() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    old = finding("gpu-ecc", age=600.0, data_status=DataStatus.STALE)
    fleet.report(0, old, finding(age=2.0, data_status=DataStatus.STALE))
    assert [incident.state for incident in fleet.carry_out().incidents] == [IncidentState.OPEN]


def test_a_late_report_that_the_node_confirms_asks_for_its_mark() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    late(fleet, 0, finding(age=2.0))
    assert reported([fleet.carry_out()]) == []
    fleet.after(1.0)
    fleet.carry_out()
    assert [decision.state for decision in decisions(fleet)] == [IncidentState.PENDING]
    plans = run(fleet, 40.0)
    assert [event.reason for plan in plans for event in plan.events] == ["NodeguardMarked"]


def test_the_end_of_a_marked_incident_is_no_short_fault() -> None:
    fleet = Fleet(3)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    ended: list[IncidentState] = []
    for _ in range(4):
        fleet.after(1.0)
        plan = fleet.issue()
        fleet.write(plan)
        ended += [incident.state for incident in plan.incidents]
        assert plan.transient_incidents == ()
    assert ended == [IncidentState.RESOLVED]


def test_each_short_fault_of_a_target_is_in_the_history() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    run(fleet, 2.0)
    assert [incident.state for incident in fleet.planner.incidents["uid-0"].values()] == [
        IncidentState.RESOLVED
    ]
    for _ in range(2):
        fleet.report(0, finding(age=2.0))
        plans = run(fleet, 5.0)
        fleet.report(0)
        plans += run(fleet, 5.0)
        assert reported(plans) == []
        assert [incident.state for plan in plans for incident in plan.transient_incidents] == [
            IncidentState.RESOLVED
        ]


def test_a_pending_incident_is_found_by_its_name_until_its_grace_period_ends() -> None:
    fleet = Fleet(3, WAITS)
    fleet.report(0, finding(age=0.0))
    run(fleet, 10.0)
    [(name, incident)] = fleet.planner.pending["uid-0"].items()
    assert fleet.planner.tracker.pending_incident(name) is incident
    assert fleet.planner.tracker.pending_incident("node-0-other") is None
    assert fleet.planner.incident(name) is None
    run(fleet, 30.0)
    assert fleet.planner.tracker.pending_incident(name) is None
    assert fleet.planner.incident(name) is not None


def test_a_pause_withholds_a_mark_only_when_its_grace_period_is_over() -> None:
    fleet = Fleet(3, WAITS)
    fleet.planner.paused = "paused by alice: a bad driver"
    fleet.report(0, finding(age=0.0))
    run(fleet, 10.0)
    assert [(decision.state, decision.reason) for decision in decisions(fleet)] == [
        (IncidentState.PENDING, "")
    ]
    run(fleet, 30.0)
    assert [(decision.state, decision.reason) for decision in decisions(fleet)] == [
        (IncidentState.WITHHELD, "paused by alice: a bad driver")
    ]


def test_a_pending_fault_leaves_an_open_incident_of_the_same_part_as_it_is() -> None:
    fleet = Fleet(3, WAITS)
    fleet.report(0, finding("gpu-hot", health=Health.WARNING))
    [opened] = fleet.carry_out().incidents
    fleet.report(0, finding("gpu-hot", health=Health.WARNING), finding(age=0.0))
    plans = run(fleet, 10.0)
    [line] = list_incidents(fleet.planner, LEADER, fleet.now).incidents
    assert (line.name, line.state, line.cause) == (opened.name, IncidentState.PENDING, "gpu-lost")
    fleet.report(0, finding("gpu-hot", health=Health.WARNING))
    assert reported(plans + run(fleet, 5.0)) == []
    assert list_incidents(fleet.planner, LEADER, fleet.now).incidents[0].state == IncidentState.OPEN


def test_an_active_mark_is_not_pending_for_another_fault() -> None:
    fleet = Fleet(3, WAITS)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0, finding(), finding("gpu-ecc", age=0.0))
    fleet.carry_out()
    assert [incident.state for incident in list_incidents(fleet.planner, LEADER, fleet.now).incidents] == [
        IncidentState.MARKED
    ]


def test_a_mark_that_is_released_ends_its_incident_though_another_fault_is_pending() -> None:
    fleet = Fleet(3, WAITS)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0, finding("gpu-ecc", age=0.0), proven=fleet.reports["uid-1"].passing)
    plans = run(fleet, 5.0)
    assert fleet.marked() == []
    assert [incident.state for plan in plans for incident in plan.incidents] == [IncidentState.RESOLVED]
    assert [incident.state for incident in list_incidents(fleet.planner, LEADER, fleet.now).incidents] == [
        IncidentState.PENDING
    ]


def test_in_observe_mode_each_request_is_a_dry_run_with_what_would_withhold_it() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE, budget=Budget()))
    for number in range(3):
        fleet.report(number, finding())
    plan = fleet.carry_out()
    assert {decision.state for decision in decisions(fleet)} == {IncidentState.DRY_RUN}
    full = "fleet budget would be used up: 1 of 1 nodes quarantined"
    assert sorted(decision.reason for decision in decisions(fleet)) == ["", full, full]
    assert sorted(incident.detail for incident in plan.incidents) == [
        f"would not quarantine node node-1: {full}",
        f"would not quarantine node node-2: {full}",
        "would quarantine node node-0",
    ]
    assert {event.reason for event in plan.events} == {"NodeguardDryRun"}
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (status.withheld.marks, status.would_mark.marks, status.policy.observe_only) == (
        0,
        3,
        True,
    )
    assert (status.dry_run.nodes, status.dry_run.within_budget, status.dry_run.over_budget) == (
        3,
        1,
        2,
    )
    assert [limit.reason for limit in status.dry_run.budget_limits] == ["fleet budget 1 node"]


def test_a_hold_or_a_pause_is_the_reason_of_a_dry_run_in_observe_mode() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.change(0, annotations={HOLD_ANNOTATION: "alice"})
    for number in range(2):
        fleet.report(number, finding())
    fleet.carry_out()
    assert sorted((decision.state, decision.reason) for decision in decisions(fleet)) == [
        (IncidentState.DRY_RUN, ""),
        (IncidentState.DRY_RUN, "hold on the node: alice"),
    ]
    status = fleet_status(fleet.planner, LEADER, fleet.now).dry_run
    assert (status.within_budget, status.over_budget, status.otherwise_withheld) == (1, 0, 1)


def test_a_check_that_is_not_enforced_is_a_dry_run_beside_one_that_is() -> None:
    rules = (ModeRule(("gpu-lost",), Mode.ENFORCE),)
    fleet = Fleet(20, replace(AT_ONCE, mode=Mode.OBSERVE, modes=rules, budget=replace(WIDE, fleet=0.05)))
    fleet.report(0, finding())
    fleet.report(1, finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.report(2, finding("gpu-ecc"))
    fleet.carry_out()
    assert {decision.request.check: decision.state for decision in decisions(fleet)} == {
        "gpu-lost": IncidentState.MARKED,
        "port-down": IncidentState.DRY_RUN,
        "gpu-ecc": IncidentState.DRY_RUN,
    }
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (status.policy.observe_only, status.policy.enforced, status.policy.observed) == (
        False,
        ("gpu-lost",),
        (),
    )
    assert (status.dry_run.nodes, status.dry_run.suspect, status.withheld.marks) == (1, 1, 0)


def test_without_a_cluster_a_mark_that_is_granted_is_advised() -> None:
    fleet = Fleet(3)
    fleet.restart(IncidentState.ADVISED)
    fleet.report(0, finding())
    plan = fleet.carry_out()
    assert [incident.state for incident in plan.incidents] == [IncidentState.ADVISED]
    assert {decision.state for decision in decisions(fleet)} == {IncidentState.ADVISED}


def test_a_used_amount_that_changes_is_no_change_of_an_incident() -> None:
    """A GPU that is marked beside changes the used amount of the budget, not why the others are withheld."""
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(2)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(2, finding("gpu-ecc", "gpu/0000:3c:00", component="GPU-1"))
    fleet.carry_out()
    fleet.report(1, finding("port-down", "port/mlx5_0/1"))
    fleet.carry_out()
    [line] = list_incidents(fleet.planner, LEADER, fleet.now, {IncidentState.WITHHELD}).incidents
    assert line.summary == "fleet budget used up: 1.125 of 2 nodes marked"
    fleet.report(
        2, finding("gpu-ecc", "gpu/0000:3c:00"), finding("gpu-ecc", "gpu/0000:3d:00", component="GPU-2")
    )
    plan = fleet.carry_out()
    assert {incident.node for incident in plan.incidents} | {event.node for event in plan.events} <= {
        "node-2"
    }
    [line] = list_incidents(fleet.planner, LEADER, fleet.now, {IncidentState.WITHHELD}).incidents
    assert line.summary == "fleet budget used up: 1.25 of 2 nodes marked"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["gpu-lost", "gpu-ecc"]), st.floats(0.0, 200.0)),
        max_size=8,
        unique_by=lambda step: step[0],
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
        fleet.report(number, finding(check, age=age))
    fleet.carry_out()
    for decision in decisions(fleet):
        rules = [
            rule.mode for rule in modes if decision.request.check == "gpu-lost" or rule.checks == ("gpu-*",)
        ]
        enforced = (rules[-1] if rules else mode) == Mode.ENFORCE
        if fleet.wall - decision.request.since < 60.0:
            assert decision.state == IncidentState.PENDING
            assert decision.until == decision.request.since + 60.0
        elif enforced:
            assert decision.state in {IncidentState.MARKED, IncidentState.WITHHELD}
            assert (decision.state == IncidentState.WITHHELD) == bool(decision.reason)
        else:
            assert decision.state == IncidentState.DRY_RUN


def test_a_node_is_charged_until_its_uncordon_is_observed() -> None:
    budget = replace(WIDE, fleet=0.1)
    fleet = Fleet(10, replace(AT_ONCE, budget=budget, marks=MarkWrites(cordon=True)))
    fleet.report(0, finding())
    fleet.carry_out()
    assert fleet.nodes["uid-0"].unschedulable
    fleet.report(0)
    release = fleet.issue()
    assert [desired.cordon for desired in release.nodes] == [False]
    fleet.report(1, finding())
    # Either may be written first: until the release is seen, it spares no budget.
    assert [desired.uid for desired in fleet.plan().nodes] == []
    fleet.write(release)
    assert [desired.uid for desired in fleet.plan().nodes] == ["uid-1"]
