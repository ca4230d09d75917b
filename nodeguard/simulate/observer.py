"""Interface for observers of a simulated fleet."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.incident import Incident
from nodeguard.model.mark import DEGRADED_TAINT, Mark
from nodeguard.model.node import Node
from nodeguard.simulate.faults import Fault


class NodeMarkState(Struct, frozen=True):
    """The marks of a node. degraded: the mark of a domain that it is in."""

    quarantine: bool = False
    suspect: bool = False
    degraded: bool = False


UNMARKED = NodeMarkState()


def node_mark_state(node: Node) -> NodeMarkState:
    """Return the marks of a Node."""
    keys = {taint.key for taint in node.taints}
    if not keys:
        return UNMARKED
    return NodeMarkState(Mark.QUARANTINE.key in keys, Mark.SUSPECT.key in keys, DEGRADED_TAINT in keys)


class Observer:
    """Receives everything that happens, and ignores it. `at` is seconds since the start of the simulation."""

    def fault_started(self, fault: Fault, at: float) -> None:
        """Handle the start of a fault."""

    def fault_ended(self, fault: Fault, at: float) -> None:
        """Handle the end of a fault."""

    def marks_changed(self, node: int, now: NodeMarkState, at: float) -> None:
        """Handle a change of a node's marks."""

    def incidents_changed(self, incidents: Iterable[Incident]) -> None:
        """Handle incidents that are new or have changed."""

    def domain_degraded(self, domain: str, at: float) -> None:
        """Handle the diagnosis of a degraded domain."""

    def check_suppressed(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """Handle a suppressed check. real: whether other sources confirm it; domain: of a version that
        explains it.
        """
