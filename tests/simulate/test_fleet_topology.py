from __future__ import annotations

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_placement import DOMAIN
from nodeguard.model.policy import Policy
from nodeguard.simulate.fleet_topology import TOPOLOGY_LABELS, simulated_topology


def test_the_planner_finds_the_same_domains() -> None:
    fleet = simulated_topology(1100)
    planner = Planner(Policy(topologies=TOPOLOGY_LABELS), ())
    for node in fleet.nodes:
        planner.update_node(node)
    placements = planner.state.placements
    for path, indexes in fleet.domains.items():
        assert all(f"{DOMAIN}{path}" in placements[fleet.nodes[index].key].domains for index in indexes)


def test_sizes_of_the_domains() -> None:
    fleet = simulated_topology(7500)
    assert len(fleet.domains["fabric/p0"]) == 512
    assert {len(fleet.domains[path]) for path in fleet.domains_at("fabric", 2)[:-1]} <= {32, 12}
    assert {len(fleet.domains[path]) for path in fleet.domains_at("nvlink", 1)} == {18}
    assert len(fleet.domains_at("nvlink", 1)) * 18 == 1494
    assert sum(len(fleet.domains[path]) for path in fleet.domains_at("rack", 2)) == 7500
