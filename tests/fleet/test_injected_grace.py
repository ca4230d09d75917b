"""Injected faults that are reported late, or long after they began: as real ones, with the grace period."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import GracePeriods, InjectionPolicy
from nodeguard.wire.report import ReportedFinding
from tests.fleet.leaves import VIEWS
from tests.fleet.scene import AT_ONCE, Fleet, finding, in_order

POLICY = replace(
    AT_ONCE, topologies=VIEWS, grace=GracePeriods(30.0, 60.0, 90.0), injection=InjectionPolicy(allowed=True)
)

NEW = finding(age=0.0)

pytestmark = pytest.mark.parametrize("is_injected", [False, True], ids=["real", "injected"])


def report(fleet: Fleet, fault: ReportedFinding, *, is_injected: bool, age: float = 0.0) -> None:
    """Report a fault, real or injected, on node 0. age: of the report."""
    real, injected = ((), (fault,)) if is_injected else ((fault,), ())
    fleet.report(0, *real, proven=(in_order(),), injected=injected, age=age)


def states(fleet: Fleet) -> list[IncidentState]:
    return [incident.state for incident in fleet.planner.tracker.recorded.by_uid.get("uid-0", {}).values()]


def pending(fleet: Fleet) -> list[bool]:
    """Return whether each pending incident of the node is injected."""
    return [incident.injected for incident in fleet.planner.tracker.pending.get("uid-0", {}).values()]


def test_a_late_report_opens_no_incident_within_the_grace_period(is_injected: bool) -> None:
    fleet = Fleet(1, POLICY)
    report(fleet, NEW, is_injected=is_injected, age=20.0)
    fleet.carry_out()
    assert (states(fleet), pending(fleet), fleet.marked()) == ([], [is_injected], [])
    assert fleet.planner.tracker.grace_end("uid-0", (NEW.target, is_injected)) == fleet.wall + 10.0
    fleet.after(5.0)  # the heartbeat confirms the report
    fleet.carry_out()
    assert (states(fleet), pending(fleet), fleet.marked()) == ([], [is_injected], [])
    fleet.after(6.0)
    fleet.carry_out()
    assert (states(fleet), pending(fleet), fleet.marked()) == ([IncidentState.MARKED], [], [0])


def test_a_fault_that_ends_before_its_late_report_is_confirmed_leaves_no_trace(is_injected: bool) -> None:
    fleet = Fleet(1, POLICY)
    report(fleet, NEW, is_injected=is_injected, age=20.0)
    fleet.carry_out()
    fleet.after(5.0, quiet=["uid-0"])
    fleet.report(0)
    fleet.carry_out()
    assert (states(fleet), pending(fleet), fleet.marked()) == ([], [], [])


def test_a_late_report_that_nothing_confirms_opens_an_incident_after_the_grace_period(
    is_injected: bool,
) -> None:
    fleet = Fleet(1, POLICY)
    report(fleet, NEW, is_injected=is_injected, age=20.0)
    fleet.carry_out()
    fleet.after(11.0, quiet=["uid-0"])
    fleet.carry_out()
    assert (states(fleet), pending(fleet), fleet.marked()) == ([IncidentState.OPEN], [], [])


def test_a_late_report_of_an_old_fault_opens_an_incident_at_once_and_marks_once_confirmed(
    is_injected: bool,
) -> None:
    fleet = Fleet(1, POLICY)
    report(fleet, NEW, is_injected=is_injected, age=700.0)
    fleet.carry_out()
    assert (states(fleet), fleet.marked()) == ([IncidentState.OPEN], [])
    fleet.after(1.0)
    fleet.carry_out()
    assert (states(fleet), fleet.marked()) == ([IncidentState.MARKED], [0])


def test_the_grace_period_begins_with_the_fault_and_not_with_its_report(is_injected: bool) -> None:
    fleet = Fleet(1, POLICY)
    report(fleet, finding(age=20.0), is_injected=is_injected)
    fleet.carry_out()
    assert (states(fleet), pending(fleet)) == ([], [is_injected])
    report(fleet, finding(age=30.0), is_injected=is_injected)
    fleet.carry_out()
    assert (states(fleet), fleet.marked()) == ([IncidentState.MARKED], [0])


def test_a_warning_about_shared_hardware_waits_for_the_diagnosis(is_injected: bool) -> None:
    fleet = Fleet(1, POLICY)
    fleet.change(0, labels={"pod": "p0", "rack": "r0"})
    fault = finding(age=0.0, health=Health.WARNING, topologies=("fabric",))
    report(fleet, fault, is_injected=is_injected)
    fleet.carry_out()
    assert states(fleet) == []
    fleet.after(91.0)
    fleet.carry_out()
    assert states(fleet) == [IncidentState.OPEN]
