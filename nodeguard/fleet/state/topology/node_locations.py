"""Node locations that the policy sets: by name, or by a pattern. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from nodeguard.model.policy import NodeLocation

_SIGN = re.compile(r"[*?\[]")


class NodeLocations:
    """The locations of nodes. topologies: those that any location names, in their order."""

    def __init__(self, locations: Iterable[NodeLocation]) -> None:
        self._named: dict[str, dict[str, str]] = {}
        fitting: dict[str, list[tuple[str, str]]] = {}
        for location in locations:
            for topology, path in location.paths.items():
                rows = fitting.setdefault(topology, [])
                if is_pattern(location.node):
                    rows.append((location.node, f"{topology}/{path}"))
                else:
                    self._named.setdefault(location.node, {}).setdefault(topology, f"{topology}/{path}")
        self.topologies = tuple(fitting)
        self._fitting = {topology: _Fitting(rows) for topology, rows in fitting.items()}

    def path(self, topology: str, node: str) -> str:
        """Return the path of a node, the topology first; empty if no location names it.

        A location of the exact name comes before a pattern, and of patterns the first that matches counts.
        """
        return self._named.get(node, {}).get(topology, "") or self._fitting[topology].path(node)


class _Fitting:
    """Patterns by their prefix: matching a thousand of them with thousands of nodes takes seconds."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self._beginning: dict[str, list[tuple[int, re.Pattern[str], str]]] = {}
        for at, (pattern, path) in enumerate(rows):
            beginning = _SIGN.split(pattern, maxsplit=1)[0]
            row = (at, re.compile(translate(pattern)), path)
            self._beginning.setdefault(beginning, []).append(row)

    def path(self, node: str) -> str:
        found, first = "", -1
        for end in range(len(node) + 1):
            for at, pattern, path in self._beginning.get(node[:end], ()):
                if 0 <= first < at:
                    break
                if pattern.match(node):
                    found, first = path, at
                    break
        return found


def is_pattern(node: str) -> bool:
    """Return whether a location is a pattern of node names."""
    return _SIGN.search(node) is not None
