"""The domains of every node, by its labels and by what people say. Changes node by node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest

from msgspec import Struct

from nodeguard.fleet.state.topology.label_schemes import Labels, LabelScheme, SchemeSelection
from nodeguard.fleet.state.topology.labels import BUILT_IN
from nodeguard.fleet.state.topology.members import path_prefixes
from nodeguard.fleet.state.topology.node_locations import NodeLocations
from nodeguard.model.policy import Policy, TopologyLabels

# What stands for a key where people say where nodes are.
PLACES = "places"

# Nodes that are named of those that lack a key.
_NAMED = 20


class MissingLabel(Struct, frozen=True):
    """Nodes that lack a key which makes the path of others: how many, and the first of their names."""

    nodes: int
    names: tuple[str, ...]


class _Seen(Struct):
    """A node. labels: all that it has now; values: those of keys that are known, and what it had last."""

    name: str
    labels: Labels
    values: Labels
    paths: tuple[str, ...] = ()
    lacks: tuple[tuple[str, str], ...] = ()


class Topologies:
    """The nodes of the fleet, and the way of each view that counts for all of them.

    What moves a node may move others: where it says so, the paths of all are to be asked for anew.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._imported: tuple[TopologyLabels, ...] = ()
        self._nodes: dict[str, _Seen] = {}
        self._lacking: dict[tuple[str, str], set[str]] = {}
        self._down: dict[str, tuple[str, ...]] = {}
        self._begin()

    def set_policy(self, policy: Policy) -> None:
        """Another policy: all may have moved."""
        if (policy.topologies, policy.locations) != (self._policy.topologies, self._policy.locations):
            self._policy = policy
            self._begin()
        self._policy = policy

    def import_schemes(self, ways: Iterable[TopologyLabels]) -> bool:
        """Ways that somebody else declares, all of them. Returns whether that moved anybody."""
        before, self._imported = self._imported, tuple(ways)
        return before != self._imported and self.choose()

    def choose(self) -> bool:
        """Choose by the nodes that there are now, whatever counted so far. Returns whether anybody moved."""
        paths = {uid: seen.paths for uid, seen in self._nodes.items()}
        self._begin()
        return any(seen.paths != paths[uid] for uid, seen in self._nodes.items())

    def update_node(self, uid: str, name: str, labels: Labels) -> bool:
        """A node of the fleet as it is now. Returns whether others moved."""
        had = self._nodes.get(uid)
        if had is not None and self._is_same(had.labels, labels):
            had.labels = labels
            return False
        seen = self._nodes[uid] = _Seen(name, labels, self._values(had.values if had else {}, labels))
        touched = self._count(seen, 1)
        if had is not None:
            touched |= self._count(had, -1)
            seen.lacks = had.lacks
        if self._settle(touched):
            self._place_all()
            return True
        self._place(uid, seen)
        return False

    def remove_node(self, uid: str) -> bool:
        """A node is not of the fleet any more. Returns whether others moved."""
        seen = self._nodes.pop(uid, None)
        if seen is None:
            return False
        self._count(seen, -1)
        self._lack(uid, seen, ())
        if self._settle(self._choices):
            self._place_all()
            return True
        return False

    def paths(self, uid: str) -> tuple[str, ...]:
        """Every domain of a node, the view first: `fabric/p7`, then `fabric/p7/leaf3`."""
        seen = self._nodes.get(uid)
        return seen.paths if seen is not None else ()

    def label_keys(self) -> Mapping[str, tuple[str, ...]]:
        """The keys that make the paths of each view, coarsest first; PLACES where people say it."""
        placed = dict.fromkeys(self._places.topologies, (PLACES,))
        return placed | {choice.topology: choice.keys for choice in self._choices if choice.keys}

    def missing_labels(self) -> Mapping[tuple[str, str], MissingLabel]:
        """Who lacks what, by view and key: nodes that never had a label, or had it once."""
        return {
            at: MissingLabel(len(uids), tuple(nsmallest(_NAMED, (self._nodes[uid].name for uid in uids))))
            for at, uids in sorted(self._lacking.items())
        }

    def _begin(self) -> None:
        """Choose the ways afresh, and place everybody."""
        self._places = NodeLocations(self._policy.locations)
        ways: dict[str, list[LabelScheme]] = {}
        for view in self._policy.topologies:
            ways.setdefault(view.name, []).append(LabelScheme(view.labels, is_own=True))
        for view in (*self._imported, *BUILT_IN):
            ways.setdefault(view.name, []).append(LabelScheme(view.labels))
        self._choices = tuple(
            SchemeSelection(name, of) for name, of in ways.items() if name not in self._places.topologies
        )
        self._by_key: dict[str, list[SchemeSelection]] = {}
        for choice in self._choices:
            for way in ways[choice.topology]:
                for key in way.keys:
                    self._by_key.setdefault(key, []).append(choice)
        self._keys = frozenset(self._by_key)
        for seen in self._nodes.values():
            seen.values = self._values(seen.values, seen.labels)
            self._count(seen, 1)
        self._settle(self._choices)
        self._place_all()

    def _is_same(self, had: Labels, has: Labels) -> bool:
        """Whether a node's labels are as they were, as far as anything is made of them."""
        return had == has or all(
            had.get(key) == has.get(key) for labels in (had, has) for key in self._keys.intersection(labels)
        )

    def _values(self, had: Labels, labels: Labels) -> Labels:
        values = {key: labels[key] for key in self._keys.intersection(labels) if labels[key]}
        for choice in self._choices if had else ():
            values |= {key: had[key] for key in choice.retained_keys(had, labels)}
        return values

    def _count(self, seen: _Seen, by: int) -> set[SchemeSelection]:
        """A node comes or leaves; returns what has to be settled for that."""
        touched = {choice for key in seen.values for choice in self._by_key[key]}
        for choice in touched:
            choice.count(seen.labels, seen.values, by)
        return touched

    def _settle(self, touched: Iterable[SchemeSelection]) -> bool:
        """Whether other keys count now, by which everybody is to be placed."""
        moved = [choice.choose_scheme(len(self._nodes)) for choice in touched]
        return any(moved)

    def _place_all(self) -> None:
        self._down.clear()
        for uid, seen in self._nodes.items():
            self._place(uid, seen)

    def _place(self, uid: str, seen: _Seen) -> None:
        paths: list[str] = []
        lacks: list[tuple[str, str]] = []
        for view in self._places.topologies:
            path = self._places.path(view, seen.name)
            paths += self._down_to(path)
            if not path:
                lacks.append((view, PLACES))
        for choice in self._choices:
            paths += self._down_to(choice.path(seen.values))
            lacks += [(choice.topology, key) for key in choice.keys if not seen.labels.get(key)]
        seen.paths = tuple(paths)
        self._lack(uid, seen, tuple(lacks))

    def _down_to(self, path: str) -> tuple[str, ...]:
        """A path after all that are above it: the same words for all nodes of one domain."""
        found = self._down.get(path)
        if found is None:
            found = self._down[path] = tuple(path_prefixes(path))
        return found

    def _lack(self, uid: str, seen: _Seen, lacks: tuple[tuple[str, str], ...]) -> None:
        if lacks == seen.lacks:
            return
        for at in seen.lacks:
            self._lacking[at].discard(uid)
            if not self._lacking[at]:
                del self._lacking[at]
        for at in lacks:
            self._lacking.setdefault(at, set()).add(uid)
        seen.lacks = lacks
