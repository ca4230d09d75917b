"""Injected faults of a suppressed check, and in a degraded domain: treated as real ones, without hiding them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.policy import InjectionPolicy
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, down, fails, wait, well
from tests.fleet.leaves import fleet as fleet_of_leaves
from tests.fleet.scene import Fleet, finding, in_order
from tests.policies import diagnosis_policy

POLICY = replace(
    ENFORCED, diagnosis=diagnosis_policy(enforce=("fabric",)), injection=InjectionPolicy(allowed=True)
)
DOMAIN = "nodeguard.dev/domain-degraded=fabric"
QUARANTINE = "nodeguard.dev/quarantine="

# A node of each leaf but the last, and one that only has an injected fault.
SPREAD = (0, 9, 17, 26, 34)
REHEARSED = 43


def injected_incident(fleet: Fleet, number: int) -> Incident:
    [incident] = [
        item for item in fleet.planner.tracker.recorded.by_uid[f"uid-{number}"].values() if item.injected
    ]
    return incident


def reasons(fleet: Fleet, number: int) -> list[str]:
    return [decision.reason for decision in fleet.planner.tracker.decisions.get(f"uid-{number}", ())]


def fire(fleet: Fleet, numbers: tuple[int, ...] = SPREAD) -> None:
    for number in numbers:
        fleet.report(number, finding(age=0.0))


def large_fleet() -> Fleet:
    """Return a fleet for which the diagnosis has run for some time."""
    fleet = fleet_of_leaves(48, POLICY)
    for _ in range(4):
        fleet.after(500.0)
        fleet.carry_out()
    return fleet


def test_an_injected_fault_of_a_suppressed_check_has_an_incident_and_no_mark() -> None:
    fleet = large_fleet()
    fire(fleet)
    wait(fleet, 30.0)
    assert set(fleet.planner.diagnosis.suppressed_checks) == {"gpu-lost"}
    fleet.report(REHEARSED, proven=(in_order(),), injected=(finding(age=0.0),))
    fleet.carry_out()
    assert fleet.marked() == []
    incident = injected_incident(fleet, REHEARSED)
    assert (incident.state, incident.parent) == (IncidentState.WITHHELD, "")
    assert incident.detail == "check gpu-lost is suppressed: see nodeguard status"
    fleet.planner.clear(next(iter(fleet.planner.tracker.recorded.by_uid[""].values())), fleet.now)
    fleet.carry_out()
    assert REHEARSED in fleet.marked()


def test_the_incident_of_a_suppressed_check_does_not_include_an_injected_fault() -> None:
    fleet = large_fleet()
    fire(fleet)
    wait(fleet, 30.0)
    warning = finding("gpu-hot", age=0.0, health=Health.WARNING)
    fleet.report(0, finding(age=30.0), injected=(warning,))
    fleet.carry_out()
    incident = injected_incident(fleet, 0)
    assert (incident.cause, incident.state, incident.parent) == ("gpu-hot", IncidentState.OPEN, "")


@pytest.mark.parametrize("is_wide", [True, False])
def test_a_suppression_releases_an_injected_mark_where_it_would_release_a_real_one(is_wide: bool) -> None:
    fleet = large_fleet()
    fire(fleet, SPREAD[:1])
    wait(fleet, 5.0)
    fleet.report(REHEARSED, proven=(in_order(),), injected=(finding(age=0.0),))
    fleet.carry_out()
    assert fleet.marked() == [0, REHEARSED]
    fire(fleet, (9, 17, 26, 34, *((1, 2, 10, 18, 19, 27, 35) if is_wide else ())))
    wait(fleet, 30.0)
    assert fleet.planner.diagnosis.suppressed_checks["gpu-lost"].retracts == is_wide
    assert fleet.marked() == ([] if is_wide else [0, REHEARSED])
    expected = IncidentState.WITHHELD if is_wide else IncidentState.MARKED
    assert injected_incident(fleet, REHEARSED).state == expected


def test_an_injected_fault_that_a_degraded_domain_would_explain_gets_no_mark_of_its_own() -> None:
    fleet = fleet_of_leaves(80, POLICY)
    fails(fleet, range(1, LEAF))
    wait(fleet, 120.0)
    assert set(fleet.planner.diagnosis.degraded_domains) == {FIRST}
    fleet.report(0, injected=(down(), finding(age=0.0)))
    wait(fleet, 120.0)
    [incident] = [
        item for item in fleet.planner.tracker.recorded.by_uid["uid-0"].values() if item.cause == "port-down"
    ]
    assert (incident.injected, incident.state, incident.parent) == (True, IncidentState.OPEN, "")
    assert incident.detail == f"reported as {FIRST}, which is degraded"
    # The domain does not explain a fault of another class.
    assert fleet.taints(0) == [DOMAIN, f"{QUARANTINE}gpu-bus"]


def test_a_degraded_domain_explains_an_injected_fault_of_a_check_that_no_node_has_reported() -> None:
    fleet = fleet_of_leaves(80, POLICY)
    for number in range(1, LEAF):
        fleet.report(number, replace(down(), check="port-flap", health=Health.SUSPECT))
    wait(fleet, 120.0)
    assert set(fleet.planner.diagnosis.degraded_domains) == {FIRST}
    fleet.report(0, injected=(down(),))
    wait(fleet, 120.0)
    assert reasons(fleet, 0) == [f"reported as {FIRST}, which is degraded"]
    assert fleet.taints(0) == [DOMAIN]


def test_an_injected_fault_is_marked_once_the_domain_has_recovered() -> None:
    fleet = fleet_of_leaves(80, POLICY)
    fails(fleet, range(1, LEAF))
    wait(fleet, 120.0)
    fleet.report(0, injected=(down(),))
    well(fleet, range(1, LEAF))
    wait(fleet, 60.0)
    assert fleet.taints(0) == [DOMAIN]
    for _ in range(60):
        fleet.after(60.0)
        fleet.carry_out()
    # The injected fault does not keep the domain degraded.
    assert not fleet.planner.diagnosis.degraded_domains
    assert fleet.marked() == [0]
    assert fleet.taints(0) == [f"{QUARANTINE}infiniband"]


@pytest.mark.parametrize("is_injected", [False, True])
def test_the_mark_of_a_domain_replaces_that_of_an_injected_fault(is_injected: bool) -> None:
    fleet = fleet_of_leaves(80, POLICY)
    real, injected = ((), (down(),)) if is_injected else ((down(),), ())
    fleet.report(0, *real, injected=injected)
    wait(fleet, 120.0)
    assert fleet.taints(0) == [f"{QUARANTINE}infiniband"]
    fails(fleet, range(1, LEAF))
    wait(fleet, 120.0)
    assert fleet.taints(0) == [DOMAIN]
    assert reasons(fleet, 0) == [f"reported as {FIRST}, which is degraded"]
    if is_injected:
        assert injected_incident(fleet, 0).state == IncidentState.OPEN


def test_the_mark_of_a_domain_replaces_that_of_an_injected_fault_that_became_real() -> None:
    fleet = fleet_of_leaves(80, POLICY)
    fleet.report(0, injected=(down(),))
    wait(fleet, 120.0)
    assert fleet.taints(0) == [f"{QUARANTINE}infiniband"]
    fails(fleet)
    wait(fleet, 120.0)
    assert fleet.taints(0) == [DOMAIN]
    assert injected_incident(fleet, 0).state == IncidentState.RESOLVED


def test_an_injected_fault_releases_no_mark_of_a_real_one_in_a_degraded_domain() -> None:
    fleet = fleet_of_leaves(80, POLICY)
    fleet.report(0, down())
    wait(fleet, 120.0)
    fleet.report(0, proven=(), injected=(down(),))
    wait(fleet, 5.0)
    fails(fleet, range(1, LEAF))
    wait(fleet, 120.0)
    assert fleet.taints(0) == [DOMAIN, f"{QUARANTINE}infiniband"]
