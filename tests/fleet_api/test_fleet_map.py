from __future__ import annotations

from collections.abc import Sequence

from nodeguard.fleet_api.fleet_map import MapGroup, MapPart, fleet_map
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from tests.aggregator.pages.scenes import plain_fleet
from tests.fleet.leaves import FIRST, fails, wait
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import Fleet, finding


def paths(groups: Sequence[MapGroup | MapPart]) -> list[str]:
    return [group.domain for group in groups]


def test_healthy_domains_fold_into_the_highest_that_includes_them() -> None:
    fleet = leaves(80)
    fleet.add(200, labels={})
    shown = fleet_map(fleet.planner, fleet.now)
    assert (shown.topology, shown.topologies[0], shown.topologies[-1]) == ("fabric", "fabric", "pool")
    expected = [("fabric/p0", 40), ("fabric/p1", 40), ("", 1)]
    assert [(group.domain, group.size) for group in shown.healthy] == expected


def test_degraded_then_faulty_domains_come_first_with_their_faulty_nodes_only() -> None:
    fleet = leaves(120)
    fleet.report(77, finding("gpu-hot", health=Health.WARNING))
    fleet.report(43, finding())
    fleet.report(46, finding())
    fails(fleet, range(6))
    wait(fleet, 20.0)
    shown = fleet_map(fleet.planner, fleet.now)
    assert paths(shown.groups) == ["fabric/p0", "fabric/p1"]
    assert paths(shown.healthy) == ["fabric/p2"]
    first, second = shown.groups
    assert paths(first.parts) == [FIRST]
    expected = (FIRST, IncidentState.MARKED, 8)
    assert (first.parts[0].degraded, first.parts[0].state, first.parts[0].size) == expected
    assert paths(second.parts) == ["fabric/p1/r5", "fabric/p1/r9"]
    assert [node.node for node in second.faulty] == ["node-43", "node-46", "node-77"]
    assert (second.parts[0].state, second.parts[0].degraded) == (None, "")


def test_a_topology_of_one_level_folds_into_the_topology() -> None:
    fleet = plain_fleet(300)
    fleet.report(100, finding())
    fleet.plan()
    shown = fleet_map(fleet.planner, fleet.now, "power")
    assert [(group.domain, len(group.faulty), group.size) for group in shown.groups] == [
        ("power/row1", 1, 96)
    ]
    assert paths(shown.groups[0].parts) == ["power/row1"]
    assert paths(shown.healthy) == ["power/row0", "power/row2", "power/row3"]


def test_a_fleet_without_topologies_is_shown_by_pool() -> None:
    fleet = Fleet(10)
    shown = fleet_map(fleet.planner, fleet.now, "fabric")
    assert (shown.topology, paths(shown.healthy)) == ("pool", [""])


def test_an_unknown_topology_means_the_default_one() -> None:
    fleet = leaves(8)
    assert fleet_map(fleet.planner, fleet.now, "<script>").topology == "fabric"


def test_an_empty_fleet_has_no_groups() -> None:
    shown = fleet_map(Fleet(0).planner, Fleet(0).now)
    assert (shown.groups, shown.healthy) == ((), ())
