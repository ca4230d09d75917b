"""Interface for observers of a simulated fleet."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.model.incident import Incident
from nodeguard.model.mark import Mark
from nodeguard.simulate.faults import Fault


def keeps_all_work_away(marks: frozenset[Mark]) -> bool:
    """Return whether no new work may run on a node with some marks."""
    return any(not mark.kind.gang_only for mark in marks)


class Observer:
    """Receives everything that happens, and ignores it. `at` is seconds since the start of the simulation."""

    def fault_started(self, fault: Fault, at: float) -> None:
        """Handle the start of a fault."""

    def fault_ended(self, fault: Fault, at: float) -> None:
        """Handle the end of a fault."""

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        """Handle a change of a node's marks."""

    def incidents_changed(self, incidents: Iterable[Incident]) -> None:
        """Handle incidents that are new or have changed."""

    def domain_degraded(self, domain: str, at: float) -> None:
        """Handle the diagnosis of a degraded domain."""

    def check_suppressed(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """Handle a suppressed check. real: whether other sources confirm it; domain: of a version that
        explains it.
        """
