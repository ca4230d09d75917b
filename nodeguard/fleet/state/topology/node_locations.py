"""Where people say that nodes are: by name, or by a pattern. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from nodeguard.model.policy import NodeLocation

_SIGN = re.compile(r"[*?\[]")


class NodeLocations:
    """Finds a node's paths. views: those that any place tells of, in their order."""

    def __init__(self, places: Iterable[NodeLocation]) -> None:
        self._named: dict[str, dict[str, str]] = {}
        fitting: dict[str, list[tuple[str, str]]] = {}
        for place in places:
            for view, path in place.paths.items():
                fits = fitting.setdefault(view, [])
                if is_pattern(place.node):
                    fits.append((place.node, f"{view}/{path}"))
                else:
                    self._named.setdefault(place.node, {}).setdefault(view, f"{view}/{path}")
        self.topologies = tuple(fitting)
        self._fitting = {view: _Fitting(rows) for view, rows in fitting.items()}

    def path(self, view: str, node: str) -> str:
        """The path of a node, the view first; empty where no place tells.

        A place of the very name goes before a pattern, and of patterns the first that fits counts.
        """
        return self._named.get(node, {}).get(view, "") or self._fitting[view].path(node)


class _Fitting:
    """Patterns by how they begin: to try a thousand of them on each of thousands of nodes takes seconds."""

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
    """Whether a place is of all nodes that a pattern fits."""
    return _SIGN.search(node) is not None
