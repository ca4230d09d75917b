"""Where people say that nodes are: by name, or by a pattern. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from nodeguard.model.policy import Place


class Places:
    """Finds a node's paths. views: those that any place tells of, in their order."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._named: dict[str, dict[str, str]] = {}
        fitting: dict[str, list[tuple[str, str]]] = {}
        for place in places:
            for view, path in place.paths.items():
                fits = fitting.setdefault(view, [])
                if is_pattern(place.node):
                    fits.append((place.node, f"{view}/{path}"))
                else:
                    self._named.setdefault(place.node, {}).setdefault(view, f"{view}/{path}")
        self.views = tuple(fitting)
        self._fitting = {view: _Fitting(rows) for view, rows in fitting.items()}

    def path(self, view: str, node: str) -> str:
        """The path of a node, the view first; empty where no place tells.

        A place of the very name goes before a pattern, and of patterns the first that fits counts.
        """
        return self._named.get(node, {}).get(view, "") or self._fitting[view].path(node)


class _Fitting:
    """Patterns as one expression: to try thousands on each of thousands of nodes would take seconds."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self._paths = [path for _, path in rows]
        self._any = re.compile("|".join(f"({translate(pattern)})" for pattern, _ in rows)) if rows else None

    def path(self, node: str) -> str:
        found = self._any.match(node) if self._any is not None else None
        return self._paths[found.lastindex - 1] if found is not None and found.lastindex else ""


def is_pattern(node: str) -> bool:
    """Whether a place is of all nodes that a pattern fits."""
    return any(sign in node for sign in "*?[")
