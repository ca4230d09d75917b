"""Schema of the history: what changed in the fleet, and who did it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# What happened: to an incident, to the marks of a node or device, or by an operator.
HistoryChange = Literal[
    "opened", "changed", "resolved", "marked", "released", "paused", "resumed", "policy", "acknowledged",
    "cleared", "false-alarm", "action", "hold", "maintenance", "cordon", "stale", "reporting", "deleted",
]  # fmt: skip


class HistoryEntry(Struct, frozen=True):
    """One change."""

    at: str
    """When it happened."""
    change: HistoryChange
    """What happened."""
    text: str
    """The change in one sentence; that of an operator has the operator's name, as far as it was given."""
    node: str = ""
    """The node that it is about; empty for none."""
    incident: str = ""
    """The incident that it is about; empty for none."""
    domain: str = ""
    """The domain that it is about; empty for none."""
    details: tuple[str, ...] = ()
    """A line for each value that differs in another policy, if several do."""


class HistoryView(Struct, frozen=True):
    """The changes since a time, oldest first."""

    version: Literal[1]
    at: str
    name: str
    """The name in the request; empty for the fleet."""
    since: str
    """Begin of the time in the request."""
    recorded_since: str
    """Time of the first record of this aggregator."""
    is_complete: bool
    """Whether all changes of this time are listed; false if older ones are left out because there are too
    many."""
    entries: tuple[HistoryEntry, ...]
    """The changes."""
