from __future__ import annotations

from random import Random

import pytest

from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS, make_shared_fault

FLEET = simulated_topology(2560)


@pytest.mark.parametrize("kind", SHARED_FAULT_KINDS)
def test_a_shared_fault_shows_only_on_members_of_its_domains(kind: str) -> None:
    assert SHARED_FAULT_KINDS[kind].fits(FLEET)
    for seed in range(5):
        shared = make_shared_fault(kind, FLEET, 1000.0, Random(seed))
        assert shared == make_shared_fault(kind, FLEET, 1000.0, Random(seed))
        nodes = {fault.node for fault in shared.faults}
        members = {node for path in shared.domains for node in FLEET.domains[path]}
        assert nodes <= members or (not shared.domains and shared.check)
        assert len(nodes) >= 3
        assert all(1000.0 <= fault.start < fault.end <= shared.end for fault in shared.faults)


@pytest.mark.parametrize(
    ("kind", "least", "most", "within"),
    [
        ("leaf dead", 1.0, 1.0, 5.0),
        ("leaf partial", 0.09, 0.5, 120.0),
        ("rack power", 1.0, 1.0, 3.0),
        ("feed loss", 0.7, 1.0, 3.0),
        ("rack cooling", 0.6, 1.0, 2400.0),
        ("NVLink tray", 1.0, 1.0, 30.0),
    ],
)
def test_share_of_the_members_and_speed(kind: str, least: float, most: float, within: float) -> None:
    for seed in range(10):
        shared = make_shared_fault(kind, FLEET, 0.0, Random(seed))
        [path] = shared.domains
        share = len({fault.node for fault in shared.faults}) / len(FLEET.domains[path])
        assert least <= share <= most
        assert max(fault.start for fault in shared.faults) <= within


def test_two_leaves_at_once_are_in_two_pods() -> None:
    for seed in range(10):
        first, second = make_shared_fault("two leaves at once", FLEET, 0.0, Random(seed)).domains
        assert first.split("/")[1] != second.split("/")[1]


@pytest.mark.parametrize("nodes", [1, 7, 8, 16, 40, 130, 512])
def test_a_shared_fault_of_a_small_fleet_leaves_other_nodes_healthy(nodes: int) -> None:
    fleet = simulated_topology(nodes)
    fitting = [name for name, kind in SHARED_FAULT_KINDS.items() if kind.fits(fleet)]
    for name in fitting:
        [*domains] = make_shared_fault(name, fleet, 0.0, Random(1)).domains
        assert all(len(fleet.domains[path]) < nodes for path in domains)
    assert ("leaf dead" in fitting) == (nodes >= 16)
    assert "spine degraded" not in fitting
