"""What is to be heard of a simulated fleet."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.incident import Incident
from nodeguard.model.mark import DEGRADED_TAINT, Mark
from nodeguard.model.node import Node
from nodeguard.simulate.faults import Fault


class NodeMarkState(Struct, frozen=True):
    """Which marks a node carries. degraded: of a domain that it is in."""

    quarantine: bool = False
    suspect: bool = False
    degraded: bool = False

    @property
    def avoided(self) -> bool:
        """Whether gangs are kept from it."""
        return self.quarantine or self.suspect or self.degraded


UNMARKED = NodeMarkState()


def node_mark_state(node: Node) -> NodeMarkState:
    """Which marks a Node carries."""
    keys = {one.key for one in node.taints}
    if not keys:
        return UNMARKED
    return NodeMarkState(Mark.QUARANTINE.key in keys, Mark.SUSPECT.key in keys, DEGRADED_TAINT in keys)


class Observer:
    """Hears of everything, with its moment in seconds since the beginning, and does nothing about it."""

    def fault_started(self, trouble: Fault, at: float) -> None:
        """A node has a trouble."""

    def fault_ended(self, trouble: Fault, at: float) -> None:
        """A node has it no more."""

    def marks_changed(self, node: int, now: NodeMarkState, at: float) -> None:
        """A node carries other marks than before."""

    def incidents_changed(self, incidents: Iterable[Incident]) -> None:
        """Incidents that have changed."""

    def domain_degraded(self, domain: str, at: float) -> None:
        """A domain is blamed."""

    def domain_recovered(self, domain: str, at: float) -> None:
        """A domain is blamed no more."""

    def check_suppressed(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """A check is held. real: whether it seems right; domain: of a version that explains it."""
