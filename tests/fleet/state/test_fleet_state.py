"""Where nodes sit as their labels, the policy and the cluster's own objects change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels

KEYS = ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1", "topology.k8s.aws/network-node-layer-1")
LABELS = st.dictionaries(st.sampled_from((*KEYS, "a")), st.sampled_from("xy"), max_size=4)
POLICIES = (
    Policy(),
    Policy(topologies=(TopologyLabels("rack", ("a",)),)),
    Policy(locations=(NodeLocation("n[ab]", {"fabric": "p1/l1"}),)),
)


def domains(state: FleetState) -> dict[str, tuple[str, ...]]:
    return {uid: placement.domains for uid, placement in state.placements.items()}


def test_all_nodes_are_placed_again_with_another_label_scheme() -> None:
    state = FleetState(Policy())
    for uid in "ab":
        state.update_node(InventoryNode(uid, uid, labels={KEYS[0]: "l1"}, gpus=8))
    assert domains(state) == dict.fromkeys("ab", ("domain/fabric/l1",))
    state.import_topologies((TopologyLabels("fabric", (KEYS[1], KEYS[0])),))
    for uid in "ab":
        state.update_node(InventoryNode(uid, uid, labels={KEYS[0]: "l1", KEYS[1]: "p1"}, gpus=8))
    assert domains(state) == dict.fromkeys("ab", ("domain/fabric/p1", "domain/fabric/p1/l1"))
    state.set_policy(POLICIES[2])
    assert domains(state) == dict.fromkeys("ab", ())
    assert state.topologies.missing_labels()["fabric", "places"].names == ("a", "b")


def test_a_node_outside_the_fleet_does_not_count_for_label_schemes() -> None:
    state = FleetState(Policy())
    state.update_node(InventoryNode("w", "web-1", labels={KEYS[2]: "n1"}))
    state.update_node(InventoryNode("g", "gpu-1", labels={KEYS[0]: "l1"}, gpus=8))
    assert state.topologies.label_keys() == {"fabric": KEYS[:1]}
    state.add_agent("w")
    assert state.topologies.missing_labels()["fabric", KEYS[0]].names == ("web-1",)
    state.remove_node("w")
    assert state.topologies.missing_labels() == {}


@given(st.permutations([*[{KEYS[0]: "l"}] * 5, *[{KEYS[0]: "l", KEYS[1]: "p"}] * 4, *[{KEYS[2]: "n"}] * 9]))
def test_domains_do_not_depend_on_the_order_of_nodes(nodes: list[dict[str, str]]) -> None:
    state = FleetState(Policy())
    for number, labels in enumerate(nodes):
        state.update_node(InventoryNode(f"u{number}", f"n{number}", labels=labels, gpus=8))
    state.choose_topologies()
    assert state.topologies.label_keys() == {"fabric": KEYS[:1]}


STEPS = st.one_of(
    st.tuples(st.sampled_from("abcde"), st.none() | LABELS),
    st.sampled_from(POLICIES),
    st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
)


@given(st.lists(STEPS, max_size=30))
def test_budgets_count_each_node_in_its_domains_after_any_change(
    steps: list[tuple[str, dict[str, str] | None] | Policy | list[str]],
) -> None:
    state = FleetState(Policy())
    for step in steps:
        if isinstance(step, Policy):
            state.set_policy(step)
        elif isinstance(step, list):
            state.import_topologies((TopologyLabels("fabric", tuple(step)),))
        elif step[1] is None:
            state.remove_node(step[0])
        else:
            state.update_node(InventoryNode(step[0], f"n{step[0]}", labels=step[1], gpus=8))
        sizes = Counter(key for placement in state.placements.values() for key in placement.budgets)
        assert {key: many for key, many in state.budgets._sizes.items() if many} == sizes
        for uid, placement in state.placements.items():
            assert placement.domains == tuple(f"domain/{path}" for path in state.topologies.paths(uid))
