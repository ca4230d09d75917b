from __future__ import annotations

from random import Random

import pytest

from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS, make_shared_fault

FLEET = simulated_topology(2560)


@pytest.mark.parametrize("kind", SHARED_FAULT_KINDS)
def test_a_shared_fault_shows_on_members_of_its_domains_alone(kind: str) -> None:
    assert SHARED_FAULT_KINDS[kind].fits(FLEET)
    for seed in range(5):
        one = make_shared_fault(kind, FLEET, 1000.0, Random(seed))
        assert one == make_shared_fault(kind, FLEET, 1000.0, Random(seed))
        where = {trouble.node for trouble in one.faults}
        members = {node for path in one.domains for node in FLEET.domains[path]}
        assert where <= members or (not one.domains and one.check)
        assert len(where) >= 3
        assert all(1000.0 <= trouble.start < trouble.end <= one.end for trouble in one.faults)


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
def test_so_many_members_show_it_so_soon(kind: str, least: float, most: float, within: float) -> None:
    for seed in range(10):
        one = make_shared_fault(kind, FLEET, 0.0, Random(seed))
        [path] = one.domains
        share = len({trouble.node for trouble in one.faults}) / len(FLEET.domains[path])
        assert least <= share <= most
        assert max(trouble.start for trouble in one.faults) <= within


def test_two_leaves_at_once_are_of_two_pods() -> None:
    for seed in range(10):
        one, other = make_shared_fault("two leaves at once", FLEET, 0.0, Random(seed)).domains
        assert one.split("/")[1] != other.split("/")[1]
