"""The lines of nodeguard history. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.fleet_api.schema.history import HistoryEntry, HistoryView
from nodeguard.fleet_api.text.history import CHANGE_STYLES
from nodeguard.fleet_api.text.wording import api_time

# Columns of the time and of the change.
_CHANGE = 13


def history_lines(view: HistoryView) -> list[StyledLine]:
    """Return a line for each change, oldest first, and one for each of its details."""
    lines = [line for entry in view.entries for line in _lines(entry)]
    if not view.is_complete:
        lines.insert(
            0, StyledLine((), "older changes are left out: name a node, or set a shorter --since", "dim")
        )
    if view.recorded_since > view.since:
        text = f"this aggregator has recorded changes since {api_time(view.recorded_since)}"
        lines.insert(0, StyledLine((), text, "dim"))
    if not view.entries:
        about = f" of {view.name}" if view.name else ""
        lines.append(StyledLine((), f"no change{about} since {api_time(view.since)}"))
    return lines


def _lines(entry: HistoryEntry) -> Iterator[StyledLine]:
    """Yield the line of a change: its time, what happened, and to what. Then its details."""
    subject = entry.node or entry.domain or entry.incident
    text = f"{subject}: {entry.text}" if subject else entry.text
    head = (
        StyledText(f"{api_time(entry.at)}  ", "dim"),
        StyledText(f"{entry.change:<{_CHANGE}}", CHANGE_STYLES.get(entry.change, "")),
    )
    yield StyledLine(head, text)
    indent = StyledText(" " * (sum(len(part.text) for part in head) + 2))
    yield from (StyledLine((indent,), detail) for detail in entry.details)
