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
    """One change. node, incident, domain: what it is about, each empty for none. text: one sentence; of an
    operator's decision with the operator's name, as far as it was given.
    """

    at: str
    change: HistoryChange
    text: str
    node: str = ""
    incident: str = ""
    domain: str = ""


class HistoryView(Struct, frozen=True):
    """The changes since a time, oldest first.

    since: of the request. recorded_since: of the first record of this aggregator. is_complete: whether older
    changes since then were left out, because there are too many. name: of the request, empty for the fleet.
    """

    version: Literal[1]
    at: str
    name: str
    since: str
    recorded_since: str
    is_complete: bool
    entries: tuple[HistoryEntry, ...]
