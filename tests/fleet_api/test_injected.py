"""Injected faults in the views: named, and never in the place of a real fault."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet_api.incident import list_incidents, worst_incidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.model.finding import Health
from nodeguard.model.incident import OperatorDecision
from tests.fleet.scene import Fleet, finding
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
    worst = worst_incidents(fleet.planner, LEADER, fleet.now, 5)
    assert [(item.node, item.injected, item.similar) for item in worst] == [
        ("node-3", False, 0),
        ("node-7", True, 1),
    ]


def test_a_real_warning_comes_before_an_injected_fatal_fault_and_before_acknowledged_ones() -> None:
    fleet = real_then_injected()
    fleet.report(4, finding("gpu-hot", health=Health.WARNING))
    fleet.carry_out()
    [acknowledged] = fleet.planner.incidents["uid-3"]
    service = replace(LEADER, decisions={acknowledged: OperatorDecision(acknowledged, "alice")})
    view = list_incidents(fleet.planner, service, fleet.now)
    assert [item.node for item in view.incidents] == ["node-4", "node-7", "node-8", "node-3"]
    assert worst_incidents(fleet.planner, service, fleet.now, 1)[0].node == "node-4"
