"""The checks that there are: those of the catalogue, and those that agents tell of, as a site has its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Known:
    """Names of checks. One that nobody tells of any more, and that the catalogue does not have, is gone."""

    def __init__(self, catalogue: Iterable[str]) -> None:
        self._catalogue = frozenset(catalogue)
        self._groups: Counter[tuple[str, ...]] = Counter()
        self._told: frozenset[str] | None = frozenset()

    def __contains__(self, check: object) -> bool:
        if check in self._catalogue:
            return True
        if self._told is None:
            self._told = frozenset(name for group in self._groups for name in group)
        return check in self._told

    def join(self, groups: Iterable[tuple[str, ...]]) -> None:
        """A node tells of groups of checks."""
        for group in groups:
            if group not in self._groups:
                self._told = None
            self._groups[group] += 1

    def leave(self, groups: Iterable[tuple[str, ...]]) -> None:
        """A node tells of them no more."""
        for group in groups:
            self._groups[group] -= 1
            if self._groups[group] <= 0:
                del self._groups[group]
                self._told = None
