"""What befalls the nodes behind a leaf switch, and is over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tests.e2e.gangs import Floor

DEGRADED = {"key": "nodeguard.dev/domain-degraded", "value": "fabric", "effect": "NoSchedule"}
SUSPECT = {"key": "nodeguard.dev/suspect", "value": "gpu-ecc", "effect": "NoSchedule"}


class Faults(Protocol):
    """Who has nodes marked. Each word returns when the marks stand, or are gone."""

    def degrades(self, leaf: str) -> None:
        """A leaf switch drops the links of its nodes."""
        ...

    def recovers(self, leaf: str) -> None: ...

    def suspects(self, *names: str) -> None:
        """Something is not right with nodes, each for itself."""
        ...

    def clear(self) -> None:
        """Nothing is wrong any more."""
        ...


class ByHand:
    """The marks as nodeguard writes them, written by the administrator."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor

    def degrades(self, leaf: str) -> None:
        self._mark(self._floor.behind(leaf), [DEGRADED])

    def recovers(self, leaf: str) -> None:
        self._mark(self._floor.behind(leaf), [])

    def suspects(self, *names: str) -> None:
        self._mark(names, [SUSPECT])

    def clear(self) -> None:
        self._mark(self._floor.leaves, [])

    def _mark(self, names: Iterable[str], taints: list[dict[str, str]]) -> None:
        for name in names:
            self._floor.cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
