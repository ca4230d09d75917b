"""Tests for nodeguard.aggregator.backends.rejected_pod_reader; tests/e2e/test_drain.py reads from a real API server."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.aggregator.backends.rejected_pod_reader import CountedBoot, fatal_nodes, follow_boot
from nodeguard.fleet.incidents.events import resolve
from nodeguard.kube.rejected_pods import NodeBoot
from nodeguard.model.finding import Health
from tests.fleet.scene import Fleet, finding

BEGAN, NOW = 1_000.0, 5_000.0


def test_nodes_with_an_open_fatal_incident_are_read_since_the_first_of_these() -> None:
    fleet = Fleet(8)
    fleet.report(1, finding())
    fleet.after(10.0)
    fleet.report(2, finding(health=Health.SUSPECT))
    fleet.carry_out()
    incidents = fleet.planner.all_incidents()
    [fatal] = [incident for incident in incidents if incident.health == Health.FATAL]
    later = replace(fatal, name="later", first_seen=fatal.first_seen + 60.0)
    assert fatal_nodes([later, *incidents]) == {"uid-1": fatal.first_seen}
    for other in (replace(fatal, injected=True), resolve(fatal, NOW), replace(fatal, node="", uid="")):
        assert fatal_nodes([other]) == {}


def test_rejected_pods_count_since_the_fault_began() -> None:
    boot = follow_boot(None, NodeBoot("a", 0), BEGAN, NOW)
    assert boot == CountedBoot("a", BEGAN)
    assert follow_boot(boot, NodeBoot("a", 0), BEGAN, NOW) == boot


def test_after_a_reboot_they_count_once_the_node_has_an_allocatable_gpu() -> None:
    boot = follow_boot(CountedBoot("a", BEGAN), NodeBoot("b", 0), BEGAN, NOW)
    assert boot == CountedBoot("b", None)
    assert follow_boot(boot, NodeBoot("b", 0), BEGAN, NOW + 15.0).since is None
    boot = follow_boot(boot, NodeBoot("b", 7), BEGAN, NOW + 30.0)
    assert boot == CountedBoot("b", NOW + 30.0)
    assert follow_boot(boot, NodeBoot("b", 0), BEGAN, NOW + 60.0) == boot
    assert follow_boot(CountedBoot("a", BEGAN), NodeBoot("b", 7), BEGAN, NOW) == CountedBoot("b", NOW)
