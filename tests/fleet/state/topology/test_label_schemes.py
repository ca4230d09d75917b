"""Which way of a view counts, and which of its levels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.catalog.check_schema import TopologyName as ViewName
from nodeguard.fleet.state.topology.label_schemes import BUILT_IN, LabelScheme, SchemeSelection

OLD: tuple[str, ...] = ("old/spine", "old/leaf")
NEW: tuple[str, ...] = ("new/core", "new/spine", "new/leaf")


def labels(keys: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(keys, "x")


class Fleet:
    """Nodes with some labels each."""

    def __init__(self, *ways: LabelScheme) -> None:
        self.choice = SchemeSelection("fabric", ways)
        self.nodes = 0
        self.changes = 0

    @property
    def keys(self) -> tuple[str, ...]:
        return self.choice.keys

    def selection(self) -> tuple[tuple[str, ...], int]:
        """The keys that count, and how often others came to."""
        return self.choice.keys, self.changes

    def replace(self, before: Iterable[str], after: Iterable[str]) -> None:
        """A node gets other labels."""
        self.choice.count(labels(before), labels(before), -1)
        self.choice.count(labels(after), labels(after), 1)
        self.choice.choose_scheme()

    def come(self, many: int, *keys: str, by: int = 1) -> None:
        for _ in range(many):
            self.nodes += by
            self.choice.count(labels(keys), labels(keys), by)
            self.changes += self.choice.choose_scheme()


def test_the_scheme_of_most_nodes_is_used() -> None:
    fleet = Fleet(LabelScheme(OLD), LabelScheme(NEW))
    assert fleet.keys == ()
    fleet.come(3, *OLD)
    fleet.come(9, *NEW)
    assert fleet.keys == NEW


def test_the_first_of_two_schemes_with_equal_coverage_is_used() -> None:
    fleet = Fleet(LabelScheme(OLD), LabelScheme(NEW))
    fleet.come(9, *OLD, *NEW)
    assert fleet.selection() == (OLD, 1)


def test_another_scheme_is_used_with_a_lead_of_a_tenth_of_its_nodes() -> None:
    fleet = Fleet(LabelScheme(OLD), LabelScheme(NEW))
    fleet.come(100, *OLD)
    fleet.come(111, *NEW)
    assert fleet.keys == OLD
    fleet.come(1, *NEW)
    assert fleet.selection() == (NEW, 2)
    fleet.come(20, *NEW, by=-1)
    assert fleet.selection() == (NEW, 2)


@given(st.integers(3, 12), st.integers(0, 12), st.integers(0, 12), st.data())
def test_no_node_decides_between_schemes_of_as_many_nodes(
    half: int, both: int, unlabelled: int, data: st.DataObject
) -> None:
    """Whatever labels one node has: at a start, and at any time after that."""
    nodes = [OLD] * half + [NEW] * half + [(*OLD, *NEW)] * both + [()] * unlabelled
    changed = data.draw(st.integers(0, len(nodes) - 1))
    expected = started(nodes)
    for labels in (OLD, NEW, (*OLD, *NEW), ()):
        forged = [*nodes[:changed], labels, *nodes[changed + 1 :]]
        assert started(forged).keys == expected.keys
        running = started(nodes)
        running.replace(nodes[changed], labels)
        assert running.keys == expected.keys


def started(nodes: Iterable[tuple[str, ...]]) -> Fleet:
    """A fleet of which all nodes are there at the start."""
    fleet = Fleet(LabelScheme(OLD), LabelScheme(NEW))
    for keys in nodes:
        fleet.nodes += 1
        fleet.choice.count(labels(keys), labels(keys), 1)
    fleet.choice.choose_scheme()
    return fleet


def test_a_rare_scheme_is_not_used_at_a_start_where_another_has_many_nodes() -> None:
    assert started([OLD] * 100 + [NEW] * 840 + [()] * 6560).keys == NEW


def test_a_label_of_one_node_is_no_scheme_while_others_have_another() -> None:
    assert started([OLD, NEW, NEW]).keys == NEW
    assert started([OLD, NEW]).keys == OLD
    assert started([(), NEW]).keys == NEW


def test_the_policys_scheme_is_used_with_all_its_levels() -> None:
    fleet = Fleet(LabelScheme(("mine/row", "mine/rack"), is_own=True), LabelScheme(NEW))
    fleet.come(9, *NEW)
    assert fleet.selection() == (("mine/row", "mine/rack"), 0)


def test_a_level_of_fewer_than_half_of_a_schemes_nodes_is_not_used() -> None:
    fleet = Fleet(LabelScheme(NEW))
    fleet.come(6, "new/spine", "new/leaf")
    fleet.come(5, *NEW)
    assert fleet.keys == ("new/spine", "new/leaf")
    fleet.come(1, *NEW)
    assert fleet.keys == NEW


def test_a_level_is_used_until_fewer_than_two_fifths_have_it() -> None:
    fleet = Fleet(LabelScheme(NEW))
    fleet.come(40, *NEW)
    fleet.come(60, "new/spine", "new/leaf")
    assert fleet.selection() == (NEW, 1)
    fleet.come(1, "new/spine", "new/leaf")
    assert fleet.keys == ("new/spine", "new/leaf")


def test_the_most_common_level_is_used_if_none_is_common_enough() -> None:
    fleet = Fleet(LabelScheme(("a", "b", "c", "d")))
    for key in ("a", "b", "c", "d", "c"):
        fleet.come(10, key)
    assert fleet.keys == ("c",)


def test_a_path_ends_before_the_first_key_that_a_node_lacks() -> None:
    choice = SchemeSelection("rack", [LabelScheme(("row", "rack", "tray"), is_own=True)])
    assert choice.path({"row": "4", "rack": "r1", "tray": "t"}) == "rack/4/r1/t"
    assert choice.path({"row": "4", "tray": "t"}) == "rack/4"
    assert not choice.path({"rack": "r1"})


def test_a_lost_label_is_retained_while_the_rest_of_the_scheme_is_unchanged() -> None:
    choice = SchemeSelection("rack", [LabelScheme(("row", "rack", "tray"), is_own=True)])
    had = {"row": "4", "rack": "r1", "tray": "t"}
    assert set(choice.retained_keys(had, {})) == set(had)
    assert set(choice.retained_keys(had, {"row": "4"})) == {"rack", "tray"}
    assert set(choice.retained_keys(had, {"row": "", "tray": "t"})) == {"row", "rack"}
    assert set(choice.retained_keys(had, {"row": "5"})) == set()
    assert set(choice.retained_keys(had, {"rack": "r2", "tray": "t"})) == set()


def test_checks_can_vote_in_every_topology_and_no_label_is_used_twice() -> None:
    assert {view.name for view in BUILT_IN} <= set(get_args(ViewName))
    labels = [label for view in BUILT_IN for label in view.labels]
    assert len(labels) == len(set(labels))


def test_the_coarsest_label_comes_first() -> None:
    paths = [view.labels for view in BUILT_IN]
    assert ("topology.kubernetes.io/region", "topology.kubernetes.io/zone") in paths
    assert [path[-1] for path in paths if path[0].startswith("fabric.topograph")] == [
        "fabric.topograph.run/tier-0"
    ]
