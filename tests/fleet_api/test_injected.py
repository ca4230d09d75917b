"""Injected faults in the views: named, and never in the place of a real fault."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet_api.incident import list_incidents, worst_incidents
from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.status import DryRunView, FleetStatus, MarkCount
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.text.status import status_view
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.policy import GracePeriods, InjectionPolicy, Mode, Policy, SoakPeriod
from tests.cli.fleet_output import look
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.fleet.test_injection import ALLOWED, inject

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0)


def real_then_injected() -> Fleet:
    """Return a fleet with a real fault of node 3 and newer injected ones of nodes 7 and 8."""
    fleet = Fleet(20, ALLOWED)
    fleet.report(3, finding("gpu-lost"))
    fleet.carry_out()
    fleet.after(60.0)
    inject(fleet, "gpu-lost", number=7)
    inject(fleet, "gpu-lost", number=8)
    fleet.carry_out()
    return fleet


def test_a_newer_injected_fault_does_not_represent_a_real_one_of_the_same_check() -> None:
    fleet = real_then_injected()
    worst, _ = worst_incidents(fleet.planner, LEADER, fleet.now, 5)
    assert [(item.node, item.injected, item.similar) for item in worst] == [
        ("node-3", False, 0),
        ("node-7", True, 1),
    ]


def test_a_real_warning_comes_before_an_injected_fatal_fault_and_before_acknowledged_ones() -> None:
    fleet = real_then_injected()
    fleet.report(4, finding("gpu-hot", health=Health.WARNING))
    fleet.carry_out()
    [acknowledged] = fleet.planner.tracker.recorded.by_uid["uid-3"]
    service = replace(LEADER, decisions={acknowledged: OperatorDecision(acknowledged, "alice")})
    view = list_incidents(fleet.planner, service, fleet.now)
    assert [item.node for item in view.incidents] == ["node-4", "node-7", "node-8", "node-3"]
    assert worst_incidents(fleet.planner, service, fleet.now, 1)[0][0].node == "node-4"


OBSERVED = replace(ALLOWED, mode=Mode.OBSERVE)
IN_GRACE = replace(ALLOWED, grace=GracePeriods(300.0, 300.0, 300.0))
PAUSED = replace(ALLOWED, pause=True)


def status(fleet: Fleet) -> FleetStatus:
    return fleet_status(fleet.planner, LEADER, fleet.now)


def status_text(fleet: Fleet) -> list[str]:
    return look(status_view(status(fleet)), 400).splitlines()


def node_text(fleet: Fleet) -> list[str]:
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert view is not None
    return look(node_view(view), 400).splitlines()


def test_an_injected_fault_has_no_commands() -> None:
    fleet = Fleet(20, ALLOWED)
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert view is not None
    assert [(found.check, found.how) for found in view.findings] == [("gpu-lost", ())]


def test_the_headline_counts_only_the_accepted_injected_faults() -> None:
    fleet = Fleet(20, AT_ONCE)
    for number in range(7):
        inject(fleet, "gpu-lost", number=number)
    fleet.carry_out()
    assert status_text(fleet)[0] == "OK  20 nodes: all checks passed."
    assert (status(fleet).injected_faults_accepted, status(fleet).injected_faults_omitted) == (0, 2)
    fleet.planner.set_policy(replace(ALLOWED, injection=InjectionPolicy(True, ("gpu-lost",))))
    inject(fleet, "gpu-ecc", number=8)
    fleet.carry_out()
    assert status_text(fleet)[0] == "OK  20 nodes: all checks passed; 7 injected faults."
    assert status(fleet).injected_faults_accepted == 7


@pytest.mark.parametrize(
    "policy", [ALLOWED, OBSERVED, IN_GRACE, PAUSED], ids=["marked", "dry", "grace", "paused"]
)
def test_a_rehearsal_changes_no_count_of_real_faults(policy: Policy) -> None:
    fleet = Fleet(20, policy)
    inject(fleet, "gpu-lost", number=2)
    fleet.carry_out()
    view = status(fleet)
    assert set(view.incidents.values()) == {0}
    assert (view.withheld, view.pending, view.would_mark) == (MarkCount(0, 0),) * 3
    assert (view.reasons, view.dry_run, view.pending_seconds_left) == ((), DryRunView(), 0.0)
    assert [(item.node, item.injected) for item in view.worst] == [("node-2", True)]
    summary = next(item for item in list_nodes(fleet.planner, fleet.now).nodes if item.node == "node-2")
    assert (summary.withheld, summary.pending, summary.would_mark) == (0, 0, 0)
    assert summary.injected == ("gpu-lost",)


def test_in_observe_mode_a_rehearsal_is_no_request_of_a_real_fault() -> None:
    fleet = Fleet(20, OBSERVED)
    inject(fleet, "gpu-lost", number=2)
    fleet.carry_out()
    assert "OBSERVE MODE - no new mark is set. No mark of a real fault is requested." in status_text(fleet)
    fleet.report(3, finding("gpu-ecc"))
    fleet.carry_out()
    view = status(fleet)
    assert (view.would_mark, view.dry_run.nodes) == (MarkCount(1, 1), 1)
    assert view.incidents[IncidentState.DRY_RUN] == 1


@pytest.mark.parametrize(
    ("policy", "headline"),
    [
        (OBSERVED, "dry run: it would be quarantined: injected: gpu-lost."),
        (
            replace(OBSERVED, budget=replace(OBSERVED.budget, fleet=0.0)),
            "dry run: the mark of injected: gpu-lost would be withheld: ",
        ),
        (IN_GRACE, "mark requested by injected: gpu-lost: pending (grace period, 5 min left)."),
        (PAUSED, "not marked (injected: gpu-lost): paused by the policy file."),
    ],
    ids=["observed", "over-budget", "grace", "paused"],
)
def test_the_first_line_of_a_node_names_an_injected_request(policy: Policy, headline: str) -> None:
    fleet = Fleet(20, policy)
    if "withheld" in headline:
        fleet.report(1, finding())
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    assert node_text(fleet)[0].startswith(f"OK  node-0: {headline}")


@pytest.mark.parametrize("policy", [OBSERVED, IN_GRACE, PAUSED], ids=["observed", "grace", "paused"])
def test_the_first_line_of_a_node_prefers_its_real_request(policy: Policy) -> None:
    fleet = Fleet(20, policy)
    fleet.report(0, finding("gpu-ecc", age=0.0), injected=(finding("gpu-lost", age=0.0),))
    fleet.carry_out()
    assert "gpu-ecc" in node_text(fleet)[0]
    assert "gpu-lost" not in node_text(fleet)[0]


def test_the_charge_of_an_injected_fault_is_named_and_forgotten() -> None:
    fleet = Fleet(2, replace(ALLOWED, soak=SoakPeriod(60.0, 600.0, 86_400.0)))
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    assert [line.strip() for line in node_text(fleet) if "counts" in line] == [
        "counts      injected: against the limit of check gpu-lost; set just now"
    ]
    fleet.report(0)
    fleet.carry_out()
    fleet.after(61.0)
    fleet.carry_out()
    assert not [line for line in node_text(fleet) if "counts" in line or "released" in line]
