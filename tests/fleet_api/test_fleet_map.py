from __future__ import annotations

import pytest

from nodeguard.fleet_api.fleet_map import FleetMap, fleet_map, natural_order
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from tests.fleet.leaves import FIRST, fails, wait
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import Fleet, finding


def paths(shown: FleetMap) -> list[str]:
    return [group.domain for group in shown.groups]


def test_every_node_is_in_its_lowest_domain() -> None:
    fleet = leaves(80)
    fleet.add(200, labels={})
    shown = fleet_map(fleet.planner, fleet.now)
    assert (shown.topology, shown.topologies[0], shown.topologies[-1]) == ("fabric", "fabric", "pool")
    assert paths(shown) == [*(f"fabric/p{rack // 5}/r{rack}" for rack in range(10)), ""]
    assert [len(group.nodes) for group in shown.groups] == [8] * 10 + [1]


def test_degraded_then_faulty_domains_come_first_and_faulty_nodes_first_in_them() -> None:
    fleet = leaves(80)
    fleet.report(77, finding("gpu-hot", health=Health.WARNING))
    fleet.report(43, finding())
    fleet.report(46, finding())
    fails(fleet, range(6))
    wait(fleet, 20.0)
    shown = fleet_map(fleet.planner, fleet.now)
    assert paths(shown)[:4] == [FIRST, "fabric/p1/r5", "fabric/p1/r9", "fabric/p0/r1"]
    first, second = shown.groups[:2]
    assert (first.degraded, first.state, first.faulty) == (FIRST, IncidentState.MARKED, 6)
    assert [node.node for node in second.nodes[:3]] == ["node-43", "node-46", "node-40"]
    assert (second.state, second.degraded) == (None, "")


def test_a_fleet_without_topologies_is_shown_by_pool() -> None:
    fleet = Fleet(10)
    shown = fleet_map(fleet.planner, fleet.now, "fabric")
    assert (shown.topology, paths(shown)) == ("pool", [""])


def test_an_unknown_topology_means_the_default_one() -> None:
    fleet = leaves(8)
    assert fleet_map(fleet.planner, fleet.now, "<script>").topology == "fabric"


def test_an_empty_fleet_has_no_groups() -> None:
    assert fleet_map(Fleet(0).planner, Fleet(0).now).groups == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [("r2", "r10"), ("r2", "r2b"), ("", "r1"), ("a/r9/n1", "a/r10/n0"), ("1", "r1"), ("²", "³")],
)
def test_numbers_are_compared_as_numbers(before: str, after: str) -> None:
    assert natural_order(before) < natural_order(after)
