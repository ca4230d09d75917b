from __future__ import annotations

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_placement import DOMAIN
from nodeguard.model.policy import Policy
from nodeguard.simulate.fleet_topology import TOPOLOGY_LABELS, simulated_topology


def test_a_planner_finds_each_node_where_it_sits() -> None:
    fleet = simulated_topology(1100)
    planner = Planner(Policy(topologies=TOPOLOGY_LABELS), ())
    for node in fleet.nodes:
        planner.update_node(node)
    for node, paths in zip(fleet.nodes, fleet.node_domains, strict=True):
        seen = {one.removeprefix(DOMAIN) for one in planner.state.placements[node.uid].domains}
        assert set(paths) <= seen


def test_groups_are_as_large_as_they_should_be() -> None:
    fleet = simulated_topology(7500)
    assert len(fleet.domains["fabric/p0"]) == 512
    assert {len(fleet.domains[one]) for one in fleet.domains_at("fabric", 2)[:-1]} <= {32, 12}
    assert {len(fleet.domains[one]) for one in fleet.domains_at("nvlink", 1)} == {18}
    assert len(fleet.domains_at("nvlink", 1)) * 18 == 1494
    assert sum(len(fleet.domains[one]) for one in fleet.domains_at("rack", 2)) == 7500
