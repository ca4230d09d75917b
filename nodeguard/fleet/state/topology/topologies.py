"""Topologies: the domains of every node, from its labels and the policy. Changes node by node. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import translate
from heapq import nsmallest

from msgspec import Struct

from nodeguard.fleet.state.topology.label_schemes import (
    BUILT_IN,
    Labels,
    LabelScheme,
    SchemeSelection,
    is_placeholder,
    location_value,
)
from nodeguard.fleet.state.topology.members import path_prefixes
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels

_SIGN = re.compile(r"[*?\[]")


class NodeLocations:
    """The locations of nodes. topologies: those that any location names, in their order."""

    def __init__(self, locations: Iterable[NodeLocation]) -> None:
        self._named: dict[str, dict[str, str]] = {}
        patterns: dict[str, list[tuple[str, str]]] = {}
        for location in locations:
            for topology, path in location.paths.items():
                rows = patterns.setdefault(topology, [])
                if is_pattern(location.node):
                    rows.append((location.node, f"{topology}/{path}"))
                else:
                    self._named.setdefault(location.node, {}).setdefault(topology, f"{topology}/{path}")
        self.topologies = tuple(patterns)
        self._patterns = {topology: _LocationPatterns(rows) for topology, rows in patterns.items()}

    def path(self, topology: str, node: str) -> str:
        """Return the path of a node, the topology first; empty if no location names it.

        A location of the exact name comes before a pattern, and of patterns the first that matches counts.
        """
        return self._named.get(node, {}).get(topology, "") or self._patterns[topology].path(node)


class _LocationPatterns:
    """Patterns by their prefix: matching a thousand of them with thousands of nodes takes seconds."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self._beginning: dict[str, list[tuple[int, re.Pattern[str], str]]] = {}
        for at, (pattern, path) in enumerate(rows):
            beginning = _SIGN.split(pattern, maxsplit=1)[0]
            row = (at, re.compile(translate(pattern)), path)
            self._beginning.setdefault(beginning, []).append(row)

    def path(self, node: str) -> str:
        matched, first = "", -1
        for end in range(len(node) + 1):
            for at, pattern, path in self._beginning.get(node[:end], ()):
                if 0 <= first < at:
                    break
                if pattern.match(node):
                    matched, first = path, at
                    break
        return matched


def is_pattern(node: str) -> bool:
    """Return whether a location is a pattern of node names."""
    return _SIGN.search(node) is not None


# The key for locations that the policy sets.
PLACES = "places"

# Maximum number of names of nodes that lack a key.
_NAMED = 20


class MissingLabel(Struct, frozen=True):
    """Nodes that lack a label of the others' paths: how many, and the first of their names. placeholders: how
    many of them have each placeholder in it.
    """

    nodes: int
    names: tuple[str, ...]
    placeholders: Mapping[str, int] = {}


class _LabeledNode(Struct):
    """A node. labels: its current labels; values: the values of the used keys, and the latest lost values."""

    name: str
    labels: Labels
    values: Labels
    paths: tuple[str, ...] = ()
    lacks: tuple[tuple[str, str], ...] = ()


class Topologies:
    """The nodes of the fleet, and the label scheme of each topology that is used for all of them.

    A change of one node may change the domains of others: then the method returns True, and all paths are to
    be read again.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._imported: tuple[TopologyLabels, ...] = ()
        self._nodes: dict[str, _LabeledNode] = {}
        self._lacking: dict[tuple[str, str], set[str]] = {}
        self._begin()

    def set_policy(self, policy: Policy) -> None:
        """Set the policy: all domains may change."""
        if (policy.topologies, policy.locations) != (self._policy.topologies, self._policy.locations):
            self._policy = policy
            self._begin()
        self._policy = policy

    def import_schemes(self, schemes: Iterable[TopologyLabels]) -> bool:
        """Import all label schemes that other objects declare. Returns whether any node's domains changed."""
        before, self._imported = self._imported, tuple(schemes)
        return before != self._imported and self.choose()

    def choose(self) -> bool:
        """Choose the schemes from the current nodes only. Returns whether any node's domains changed."""
        paths = {uid: node.paths for uid, node in self._nodes.items()}
        self._begin()
        return any(node.paths != paths[uid] for uid, node in self._nodes.items())

    def update_node(self, uid: str, name: str, labels: Labels) -> bool:
        """Update a node. Returns whether the domains of others changed."""
        before = self._nodes.get(uid)
        if before is not None and self._is_same(before.labels, labels):
            before.labels = labels
            return False
        node = self._nodes[uid] = _LabeledNode(
            name, labels, self._values(before.values if before else {}, labels)
        )
        touched = self._count(node, 1)
        if before is not None:
            touched |= self._count(before, -1)
            node.lacks = before.lacks
        if self._settle(touched):
            self._place_all()
            return True
        self._place(uid, node)
        return False

    def remove_node(self, uid: str) -> bool:
        """Remove a node. Returns whether the domains of others changed."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return False
        self._count(node, -1)
        self._set_lacks(uid, node, ())
        if self._settle(self._choices):
            self._place_all()
            return True
        return False

    def paths(self, uid: str) -> tuple[str, ...]:
        """Return every domain of a node, the topology first: `fabric/p7`, then `fabric/p7/leaf3`."""
        node = self._nodes.get(uid)
        return node.paths if node is not None else ()

    def label_keys(self) -> Mapping[str, tuple[str, ...]]:
        """Return the keys of the paths of each topology, coarsest first; PLACES for node locations."""
        placed = dict.fromkeys(self._locations.topologies, (PLACES,))
        return placed | {choice.topology: choice.keys for choice in self._choices if choice.keys}

    def missing_labels(self) -> Mapping[tuple[str, str], MissingLabel]:
        """Return the nodes that lack a label, by topology and key: they never had it, or had it once."""
        missing = {}
        for (topology, key), uids in sorted(self._lacking.items()):
            nodes = [self._nodes[uid] for uid in uids]
            names = tuple(nsmallest(_NAMED, (node.name for node in nodes)))
            values = Counter(
                self._location(topology, node.name)[1] if key == PLACES else node.labels.get(key, "")
                for node in nodes
            )
            del values[""]
            missing[topology, key] = MissingLabel(len(uids), names, dict(sorted(values.items())))
        return missing

    def _location(self, topology: str, node: str) -> tuple[str, str]:
        """Return the path of a node by its location down to the first placeholder, and that; each empty for
        none.
        """
        steps = self._locations.path(topology, node).split("/")
        count = next((at for at, step in enumerate(steps) if at and is_placeholder(step)), len(steps))
        return "/".join(steps[:count]), "/".join(steps[count : count + 1])

    def _begin(self) -> None:
        """Choose all schemes again, and place all nodes."""
        self._locations = NodeLocations(self._policy.locations)
        schemes: dict[str, list[LabelScheme]] = {}
        for topology in self._policy.topologies:
            schemes.setdefault(topology.name, []).append(LabelScheme(topology.labels, is_own=True))
        for topology in (*self._imported, *BUILT_IN):
            schemes.setdefault(topology.name, []).append(LabelScheme(topology.labels))
        self._choices = tuple(
            SchemeSelection(name, options)
            for name, options in schemes.items()
            if name not in self._locations.topologies
        )
        self._by_key: dict[str, list[SchemeSelection]] = {}
        for choice in self._choices:
            for scheme in schemes[choice.topology]:
                for key in scheme.keys:
                    self._by_key.setdefault(key, []).append(choice)
        self._keys = frozenset(self._by_key)
        for node in self._nodes.values():
            node.values = self._values(node.values, node.labels)
            self._count(node, 1)
        self._settle(self._choices)
        self._place_all()

    def _is_same(self, before: Labels, after: Labels) -> bool:
        """Return whether a node's labels are unchanged, as far as they are used."""
        return before == after or all(
            before.get(key) == after.get(key)
            for labels in (before, after)
            for key in self._keys.intersection(labels)
        )

    def _values(self, before: Labels, labels: Labels) -> Labels:
        present = self._keys.intersection(labels)
        values = {key: value for key in present if (value := location_value(labels, key))}
        for choice in self._choices if before else ():
            values |= {key: before[key] for key in choice.retained_keys(before, labels)}
        return values

    def _count(self, node: _LabeledNode, by: int) -> set[SchemeSelection]:
        """Add or remove a node; returns the selections to choose again."""
        touched = {choice for key in node.values for choice in self._by_key[key]}
        for choice in touched:
            choice.count(node.labels, node.values, by)
        return touched

    def _settle(self, touched: Iterable[SchemeSelection]) -> bool:
        """Choose the schemes again. Returns whether other keys are used now."""
        moved = [choice.choose_scheme() for choice in touched]
        return any(moved)

    def _place_all(self) -> None:
        for uid, node in self._nodes.items():
            self._place(uid, node)

    def _place(self, uid: str, node: _LabeledNode) -> None:
        paths: list[str] = []
        lacks: list[tuple[str, str]] = []
        for topology in self._locations.topologies:
            path, placeholder = self._location(topology, node.name)
            paths += path_prefixes(path)
            if not path or placeholder:
                lacks.append((topology, PLACES))
        for choice in self._choices:
            paths += path_prefixes(choice.path(node.values))
            lacks += [(choice.topology, key) for key in choice.keys if not choice.value(node.labels, key)]
        node.paths = tuple(paths)
        self._set_lacks(uid, node, tuple(lacks))

    def _set_lacks(self, uid: str, node: _LabeledNode, lacks: tuple[tuple[str, str], ...]) -> None:
        if lacks == node.lacks:
            return
        for at in node.lacks:
            self._lacking[at].discard(uid)
            if not self._lacking[at]:
                del self._lacking[at]
        for at in lacks:
            self._lacking.setdefault(at, set()).add(uid)
        node.lacks = lacks
