"""Placeholder labels, such as `unknown`: they are no failure domain."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet_api.domain import describe_topology
from nodeguard.fleet_api.text.phrases import topology_text
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels
from tests.fleet.leaves import ENFORCED, LEAF, down, wait
from tests.fleet.scene import Fleet
from tests.policies import diagnosis_policy

TOPOLOGIES = (TopologyLabels("fabric", ("pod", "leaf")), TopologyLabels("rack", ("rack",)))
POLICY = replace(
    ENFORCED, topologies=TOPOLOGIES, diagnosis=diagnosis_policy(enforce=("fabric", "rack", "power"))
)
LABELLED, UNKNOWN = 680, 120
PLACEHOLDERS = ["unknown", "Unknown", "none", "default", "n/a", "N/A", "null", "-", "--", "", "<none>", "?"]


def fleet(placeholder: str = "unknown") -> Fleet:
    """A fleet of which 15% of the nodes have a placeholder as pod, leaf and rack."""
    made = Fleet(0, POLICY)
    for number in range(LABELLED):
        leaf = number // LEAF
        made.add(number, labels={"pod": f"p{leaf // 5}", "leaf": f"l{leaf}", "rack": f"r{leaf}"})
    for number in range(LABELLED, LABELLED + UNKNOWN):
        made.add(number, labels=dict.fromkeys(("pod", "leaf", "rack"), placeholder))
    made.after(1.0)
    made.carry_out()
    return made


def lose_links(made: Fleet) -> set[int]:
    """Twenty of the nodes without a location lose a link within ten minutes."""
    failed = range(LABELLED, LABELLED + 120, 6)
    for number in failed:
        made.report(number, down())
        wait(made, 30.0)
    wait(made, 300.0)
    return set(failed)


def test_nodes_with_a_placeholder_share_nothing() -> None:
    made = fleet()
    failed = lose_links(made)
    assert made.planner.diagnosis.degraded_domains == {}
    assert set(made.marked()) <= failed


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_a_placeholder_is_no_domain_and_has_no_budget(placeholder: str) -> None:
    state = FleetState(Policy(topologies=TOPOLOGIES))
    state.update_node(
        InventoryNode("a", "a", labels={"pod": placeholder, "leaf": "l1", "rack": "r1"}, gpus=8)
    )
    state.update_node(InventoryNode("b", "b", labels={"pod": "p1", "leaf": placeholder}, gpus=8))
    assert state.placements["a"].domains == ("domain/rack/r1",)
    assert state.placements["b"].domains == ("domain/fabric/p1",)


@pytest.mark.parametrize("name", ["r0", "0", "unknown-7", "defaults", "none1", "na-east-1", "row-1"])
def test_a_name_is_a_domain(name: str) -> None:
    state = FleetState(Policy(topologies=TOPOLOGIES))
    state.update_node(InventoryNode("a", "a", labels={"rack": name}, gpus=8))
    assert state.placements["a"].domains == (f"domain/rack/{name}",)


@pytest.mark.parametrize("placeholder", [name for name in PLACEHOLDERS if name and "/" not in name])
def test_a_placeholder_in_a_table_is_no_location(placeholder: str) -> None:
    locations = NodeLocation("a", {"rack": f"row-1/{placeholder}", "power": f"{placeholder}/r1"})
    state = FleetState(Policy(locations=(locations,)))
    state.update_node(InventoryNode("a", "a", gpus=8))
    assert state.placements["a"].domains == ("domain/rack/row-1",)


def test_a_label_that_becomes_a_placeholder_leaves_the_node_where_it_was() -> None:
    made = fleet()
    before = made.planner.state.placements["uid-0"].domains
    labels = made.nodes["uid-0"].labels
    made.change(0, labels={**labels, "leaf": "unknown"})
    assert made.planner.state.placements["uid-0"].domains == before
    made.change(0, labels={**labels, "leaf": "l9"})
    assert made.planner.state.placements["uid-0"].domains != before


def test_a_level_of_placeholders_is_no_level_of_a_built_in_scheme() -> None:
    state = FleetState(Policy())
    tiers = [f"network.topology.nvidia.com/{tier}" for tier in ("spine", "leaf")]
    for number in range(8):
        labels = dict(zip(tiers, ("default", f"l{number // 4}"), strict=True))
        state.update_node(InventoryNode(f"{number}", f"n{number}", labels=labels, gpus=8))
    assert state.placements["0"].domains == ("domain/fabric/l0",)


def test_the_status_names_the_label_the_placeholder_and_the_number_of_nodes() -> None:
    made = fleet()
    made.change(LABELLED, labels={"pod": "p0", "leaf": "l0"})
    made.change(LABELLED + 1, labels={"pod": "p0", "leaf": "l0", "rack": "none"})
    text = topology_text(describe_topology(made.planner, "rack"))
    assert text.startswith("rack 85 domains by label rack, 120 nodes lack rack (node-680, ")
    assert text.endswith("; placeholders: none on 1, unknown on 118)")
