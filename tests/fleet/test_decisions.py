"""The decision on each mark request, and what is reported of it: granted, withheld, pending or a dry run."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet_api.incident import list_incidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import GracePeriods, Mode, TopologyLabels
from nodeguard.wire.report import VERSION, Report, ReportedFinding
from tests.fleet.cluster_planner import ClusterPlan
from tests.fleet.scene import AT_ONCE, Fleet, finding

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0)
WAITS = replace(AT_ONCE, grace=GracePeriods(30.0, 60.0, 90.0))
WAITS_A_MINUTE = replace(AT_ONCE, grace=GracePeriods(60.0, 60.0, 60.0))


def decisions(fleet: Fleet) -> list[MarkDecision]:
    return [decision for found in fleet.planner.tracker.decisions.values() for decision in found]


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
    assert (fleet.planner.tracker.recorded.by_uid, fleet.planner.tracker.pending) == ({}, {})
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
    assert (status.pending.marks, status.pending_seconds_left, status.withheld.marks, status.reasons) == (
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


def late(fleet: Fleet, *findings: ReportedFinding) -> None:
    """A report that the node's agent could send only some time after its verdict."""
    report = Report(
        version=VERSION, node="node-0", boot_id="b", sequence=2, health=Health.FATAL,
        data_status=DataStatus.FRESH, findings=findings, age=30.0,
    )  # fmt: skip
    fleet.planner.record_report("uid-0", report, fleet.now)


def test_a_late_report_of_a_short_fault_leaves_no_event_and_no_incident() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    late(fleet, finding(age=2.0))
    plans = [fleet.plan()]
    [incident] = fleet.planner.tracker.pending["uid-0"].values()
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
    assert fleet.planner.tracker.pending == {}


def test_an_old_stale_fault_is_reported_beside_a_new_one() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    old = finding("gpu-ecc", age=600.0, data_status=DataStatus.STALE)
    fleet.report(0, old, finding(age=2.0, data_status=DataStatus.STALE))
    assert [incident.state for incident in fleet.carry_out().incidents] == [IncidentState.OPEN]


def test_a_late_report_that_the_node_confirms_asks_for_its_mark() -> None:
    fleet = Fleet(3, WAITS_A_MINUTE)
    late(fleet, finding(age=2.0))
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
    assert [incident.state for incident in fleet.planner.tracker.recorded.by_uid["uid-0"].values()] == [
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
    [(name, incident)] = fleet.planner.tracker.pending["uid-0"].items()
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
