"""The domains of nodes, as they come, change and go."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.fleet.state.topology.topologies import MissingLabel, NodeLocations, Topologies, is_pattern
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels

RACKS = Policy(topologies=(TopologyLabels("rack", ("row", "rack")),))
LEAF, SPINE, TIER_2 = (f"fabric.topograph.run/tier-{tier}" for tier in (0, 1, 2))


def fleet(policy: Policy, **nodes: dict[str, str]) -> Topologies:
    views = Topologies(policy)
    for name, labels in nodes.items():
        views.update_node(name, name, labels)
    return views


def test_a_node_is_in_every_domain_on_its_path_of_each_topology() -> None:
    labels = {
        "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z", SPINE: "s2", LEAF: "l7",
        "nvidia.com/gpu.clique": "c.1", "row": "4", "rack": "r9", "something": "else",
    }  # fmt: skip
    assert fleet(RACKS, a=labels).paths("a") == (
        "rack/4", "rack/4/r9", "zone/r", "zone/r/z", "fabric/s2", "fabric/s2/l7", "nvlink/c.1"
    )  # fmt: skip
    assert fleet(RACKS, a=labels).label_keys() == {
        "rack": ("row", "rack"),
        "zone": ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
        "fabric": (SPINE, LEAF),
        "nvlink": ("nvidia.com/gpu.clique",),
    }


def test_a_path_skips_no_level() -> None:
    whole = {TIER_2: "core", SPINE: "s1", LEAF: "l1"}
    views = fleet(Policy(), a=whole, b=whole, c={TIER_2: "core", LEAF: "l1"}, d={LEAF: "l1"})
    assert views.paths("c") == ("fabric/core",)
    assert views.paths("d") == ()
    assert views.missing_labels() == {
        ("fabric", SPINE): MissingLabel(2, ("c", "d")),
        ("fabric", TIER_2): MissingLabel(1, ("d",)),
    }


def test_a_zero_is_no_location_among_names_and_the_first_among_numbers() -> None:
    named = {"a": "r1", "b": "r2", "c": "0"}
    views = fleet(RACKS, **{name: {"row": "row1", "rack": rack} for name, rack in named.items()})
    assert views.paths("c") == ("rack/row1",)
    assert views.missing_labels() == {("rack", "rack"): MissingLabel(1, ("c",), {"0": 1})}
    assert views.update_node("d", "d", {"row": "row1", "rack": "1"})
    assert views.paths("c") == ("rack/row1", "rack/row1/0")
    assert not views.missing_labels()
    assert views.remove_node("d")
    assert views.paths("c") == ("rack/row1",)


def test_a_name_on_as_few_nodes_as_a_zero_takes_it_no_location() -> None:
    """No kubelet decides for the fleet by the labels of its own Node."""
    views = fleet(RACKS, a={"row": "0", "rack": "r1"}, b={"row": "row-0", "rack": "r2"})
    assert views.paths("a") == ("rack/0", "rack/0/r1")


def test_the_policys_scheme_is_used_and_nodes_without_it_are_named() -> None:
    views = fleet(
        Policy(topologies=(TopologyLabels("fabric", ("my/leaf",)),)), a={LEAF: "l1"}, b={"my/leaf": "m"}
    )
    assert (views.paths("a"), views.paths("b")) == ((), ("fabric/m",))
    assert views.missing_labels() == {("fabric", "my/leaf"): MissingLabel(1, ("a",))}


def test_another_scheme_moves_all_nodes() -> None:
    views = fleet(Policy(), a={LEAF: "l1", "topology.k8s.aws/network-node-layer-1": "n1"})
    assert views.paths("a") == ("fabric/l1",)
    for uid in "bc":
        assert not views.update_node(uid, uid, {"topology.k8s.aws/network-node-layer-1": "n1"})
    assert views.update_node("d", "d", {"topology.k8s.aws/network-node-layer-1": "n1"})
    assert {views.paths(uid) for uid in "abcd"} == {("fabric/n1",)}


def test_a_node_that_joins_or_leaves_moves_no_other_node() -> None:
    views = fleet(Policy(), a={LEAF: "l1"}, b={LEAF: "l1"})
    assert not views.update_node("c", "c", {LEAF: "l2"})
    assert not views.remove_node("c")
    assert not views.remove_node("c")
    assert views.paths("c") == ()


def test_a_node_with_lost_labels_keeps_its_domains_and_is_named() -> None:
    labels = {SPINE: "s1", LEAF: "l1"}
    views = fleet(Policy(), a=labels, b=labels)
    views.update_node("a", "a", {})
    assert views.paths("a") == ("fabric/s1", "fabric/s1/l1")
    assert views.missing_labels() == {
        ("fabric", SPINE): MissingLabel(1, ("a",)),
        ("fabric", LEAF): MissingLabel(1, ("a",)),
    }
    views.update_node("b", "b", {})
    assert views.paths("b") == ("fabric/s1", "fabric/s1/l1")
    views.update_node("a", "a", {SPINE: "s2", LEAF: "l9"})
    assert views.paths("a") == ("fabric/s2", "fabric/s2/l9")
    views.remove_node("b")
    views.update_node("b", "b", {})
    assert views.paths("b") == ()


def test_lost_labels_are_not_replaced_by_those_of_a_few_nodes() -> None:
    views = Topologies(Policy())
    for number in range(30):
        views.update_node(f"n{number}", f"n{number}", {LEAF: f"l{number // 10}"})
    for number in range(30):
        views.update_node(f"n{number}", f"n{number}", {})
    views.update_node("new", "new", {"topology.k8s.aws/network-node-layer-1": "n1"})
    assert views.paths("n29") == ("fabric/l2",)


def test_a_moved_node_keeps_no_old_label() -> None:
    views = fleet(RACKS, a={"row": "1", "rack": "r1"})
    views.update_node("a", "a", {"row": "2"})
    assert views.paths("a") == ("rack/2",)


def test_locations_are_used_for_their_topologies_and_labels_for_the_others() -> None:
    places = (NodeLocation("gpu-1", {"rack": "row-1/r1"}), NodeLocation("gpu-?", {"power": "feed-a"}))
    policy = Policy(topologies=RACKS.topologies, locations=places)
    labels = {"row": "9", "rack": "r9", LEAF: "l1"}
    views = fleet(policy, **{"gpu-1": labels, "gpu-2": labels})
    assert views.paths("gpu-1") == ("rack/row-1", "rack/row-1/r1", "power/feed-a", "fabric/l1")
    assert views.paths("gpu-2") == ("power/feed-a", "fabric/l1")
    assert views.missing_labels() == {("rack", "places"): MissingLabel(1, ("gpu-2",))}
    assert views.label_keys() == {"rack": ("places",), "power": ("places",), "fabric": (LEAF,)}


def test_another_policy_places_all_nodes_again() -> None:
    views = fleet(Policy(), a={"row": "1", "rack": "r1", LEAF: "l1"})
    views.set_policy(RACKS)
    assert views.paths("a") == ("rack/1", "rack/1/r1", "fabric/l1")
    views.set_policy(Policy())
    assert views.paths("a") == ("fabric/l1",)


def test_an_imported_scheme_is_used_if_most_nodes_have_it() -> None:
    kueue = TopologyLabels("fabric", ("cloud/block", "cloud/rack"))
    labels = {"cloud/block": "b1", "cloud/rack": "r1"}
    views = fleet(Policy(), a=labels, b={**labels, LEAF: "l1"})
    assert views.paths("a") == ()
    assert views.import_schemes((kueue,))
    assert not views.import_schemes((kueue,))
    assert views.paths("a") == views.paths("b") == ("fabric/b1", "fabric/b1/r1")
    assert views.import_schemes(())
    assert (views.paths("a"), views.paths("b")) == ((), ("fabric/l1",))


def test_only_a_few_nodes_without_a_key_are_named() -> None:
    policy = Policy(topologies=(TopologyLabels("rack", ("rack",)),))
    views = fleet(policy, **{f"n{number:02}": dict[str, str]() for number in range(50)})
    [lack] = views.missing_labels().values()
    assert (lack.nodes, lack.names) == (50, tuple(f"n{number:02}" for number in range(20)))


KEYS = (LEAF, SPINE, TIER_2, "topology.k8s.aws/network-node-layer-1", "row", "rack", "other")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(("x", "y", "")), max_size=5)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | LABELS), max_size=40))
def test_each_change_is_reported_and_all_nodes_use_one_scheme(
    steps: list[tuple[str, dict[str, str] | None]],
) -> None:
    views = Topologies(RACKS)
    there: dict[str, dict[str, str]] = {}
    for uid, labels in steps:
        before = {other: views.paths(other) for other in there if other != uid}
        if labels is None:
            there.pop(uid, None)
            moved = views.remove_node(uid)
        else:
            there[uid] = labels
            moved = views.update_node(uid, uid, labels)
        assert moved or before == {other: views.paths(other) for other in there if other != uid}
        lacking = views.missing_labels()
        for view, keys in views.label_keys().items():
            for key in keys:
                without = sorted(item for item, has in there.items() if not has.get(key))
                assert list(lacking.get((view, key), MissingLabel(0, ())).names) == without
            for node in there:
                steps_of = [path for path in views.paths(node) if path.startswith(f"{view}/")]
                assert [path.count("/") for path in steps_of] == list(range(1, len(steps_of) + 1))
                assert len(steps_of) <= len(keys)


PLACES = NodeLocations(
    (
        NodeLocation("gpu-r1?-*", {"rack": "row-1/any", "power": "feed-a"}),
        NodeLocation("gpu-*", {"rack": "row-2/rest"}),
        NodeLocation("gpu-r12-3", {"rack": "row-9/r12"}),
        NodeLocation("[ab].site", {"power": "feed-b"}),
    )
)


def test_a_name_comes_before_a_pattern_and_the_first_matching_pattern_is_used() -> None:
    assert PLACES.path("rack", "gpu-r12-3") == "rack/row-9/r12"
    assert PLACES.path("rack", "gpu-r12-4") == "rack/row-1/any"
    assert PLACES.path("rack", "gpu-7") == "rack/row-2/rest"


def test_each_topology_has_its_own_scheme() -> None:
    assert PLACES.topologies == ("rack", "power")
    assert PLACES.path("power", "gpu-r12-3") == "power/feed-a"
    assert PLACES.path("power", "a.site") == "power/feed-b"


def test_a_node_without_a_location_has_no_path() -> None:
    assert not PLACES.path("rack", "login-1")
    assert not PLACES.path("power", "axsite")
    assert not PLACES.path("power", "a.site2")


NAMES = st.text("ab-", max_size=4)
PATTERNS = st.text("ab-*?[]", min_size=1, max_size=4).filter(is_pattern)


@given(st.lists(PATTERNS, max_size=8), NAMES)
def test_the_first_matching_shell_pattern_is_used(patterns: list[str], name: str) -> None:
    places = NodeLocations(NodeLocation(pattern, {"rack": f"r{at}"}) for at, pattern in enumerate(patterns))
    fitting = [at for at, pattern in enumerate(patterns) if fnmatchcase(name, pattern)]
    assert (places.path("rack", name) if patterns else "") == (f"rack/r{fitting[0]}" if fitting else "")
