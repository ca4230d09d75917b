from __future__ import annotations

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.seat import DOMAIN
from nodeguard.model.policy import Policy
from nodeguard.simulate.topology import VIEWS, topology


def test_a_planner_finds_each_node_where_it_sits() -> None:
    fleet = topology(1100)
    planner = Planner(Policy(views=VIEWS), ())
    for node in fleet.nodes:
        planner.node(node)
    for node, paths in zip(fleet.nodes, fleet.of, strict=True):
        seen = {one.removeprefix(DOMAIN) for one in planner.roster.seats[node.uid].domains}
        assert set(paths) <= seen


def test_groups_are_as_large_as_they_should_be() -> None:
    fleet = topology(7500)
    assert len(fleet.domains["fabric/p0"]) == 512
    assert {len(fleet.domains[one]) for one in fleet.of_view("fabric", 2)[:-1]} <= {32, 12}
    assert {len(fleet.domains[one]) for one in fleet.of_view("nvlink", 1)} == {18}
    assert len(fleet.of_view("nvlink", 1)) * 18 == 1494
    assert sum(len(fleet.domains[one]) for one in fleet.of_view("rack", 2)) == 7500
