"""What is to be heard of a simulated fleet."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.incident import Incident
from nodeguard.model.mark import DEGRADED, Mark
from nodeguard.model.node import Node
from nodeguard.simulate.troubles import Trouble


class Standing(Struct, frozen=True):
    """Which marks a node carries. degraded: of a domain that it is in."""

    quarantine: bool = False
    suspect: bool = False
    degraded: bool = False

    @property
    def avoided(self) -> bool:
        """Whether gangs are kept from it."""
        return self.quarantine or self.suspect or self.degraded


CLEAN = Standing()


def standing(node: Node) -> Standing:
    """Which marks a Node carries."""
    keys = {one.key for one in node.taints}
    if not keys:
        return CLEAN
    return Standing(Mark.QUARANTINE.key in keys, Mark.SUSPECT.key in keys, DEGRADED in keys)


class Watcher:
    """Hears of everything, with its moment in seconds since the beginning, and does nothing about it."""

    def begins(self, trouble: Trouble, at: float) -> None:
        """A node has a trouble."""

    def ends(self, trouble: Trouble, at: float) -> None:
        """A node has it no more."""

    def marked(self, node: int, now: Standing, at: float) -> None:
        """A node carries other marks than before."""

    def told(self, incidents: Iterable[Incident]) -> None:
        """Incidents that have changed."""

    def blamed(self, domain: str, at: float) -> None:
        """A domain is blamed."""

    def cleared(self, domain: str, at: float) -> None:
        """A domain is blamed no more."""

    def held(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """A check is held. real: whether it seems right; domain: of a version that explains it."""
