"""The changes of the past 24 hours as HTML: their numbers, a drawing, and the latest ones. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from nodeguard.aggregator.pages.html import (
    EMPTY,
    Html,
    command_element,
    domain_path,
    element,
    escape,
    incident_path,
    link,
    node_path,
)
from nodeguard.aggregator.pages.sections import table
from nodeguard.aggregator.pages.timeline import Bar, chart
from nodeguard.fleet_api.schema.history import HistoryChange, HistoryEntry, HistoryView
from nodeguard.fleet_api.text.history import CHANGE_STYLES
from nodeguard.fleet_api.text.wording import api_time, count_noun
from nodeguard.model.instant import parse_or_zero

# Seconds of the timeline, the slots of its drawing, and the rows of its table.
PERIOD = 86_400.0
_SLOTS = 48
_SLOT = PERIOD / _SLOTS
_ROWS = 30

_TITLE = element("b", "Past 24 hours")


class _Lane(NamedTuple):
    """A row of the drawing: its changes and the style of its bars."""

    changes: tuple[HistoryChange, ...]
    style: str


_OTHERS = "others"
_LANES = {
    "faults": _Lane(("opened", "changed"), "fatal"),
    "marks": _Lane(("marked",), "suspect"),
    "ends": _Lane(("resolved", "released"), "ok"),
    "agents": _Lane(("stale", "reporting"), "warning"),
    _OTHERS: _Lane((), "operator"),
}
_LANE_OF = {change: name for name, lane in _LANES.items() for change in lane.changes}

# The changes that are counted by kind: one of them, and several.
_NOUNS: dict[HistoryChange, tuple[str, str]] = {
    "opened": ("new fault", "new faults"),
    "marked": ("mark set", "marks set"),
    "released": ("mark released", "marks released"),
    "resolved": ("fault over", "faults over"),
    "paused": ("pause", "pauses"),
    "policy": ("policy change", "policy changes"),
}


def changes_section(view: HistoryView | None, problem: str = "") -> Html:
    """Return the changes of the past 24 hours, folded below their numbers. view: of these hours; None if it
    could not be read. problem: why.
    """
    if view is None or not view.entries:
        text = f"not available: {problem}" if view is None else f"no change{_since_record(view)}"
        return element("section", _TITLE, f": {text}.", class_="past")
    latest = view.entries[: -_ROWS - 1 : -1]
    older_count = len(view.entries) - len(latest)
    command = f"nodeguard history {shlex.quote(view.name)}" if view.name else "nodeguard history"
    or_more = "" if view.is_complete else " or more"
    older = (f"and {older_count}{or_more} older ones: ", command_element(command))
    content = (
        element("summary", _TITLE, f": {_summary(view)}"),
        _drawing(view),
        table(("Time", "Change", "On", "What"), (_row(entry, view) for entry in latest), "changes"),
        element("p", *older) if older_count else EMPTY,
    )
    return element("section", element("details", *content, id="changes"), class_="past")


def _summary(view: HistoryView) -> str:
    """Return how many changes of each kind there are."""
    counts = Counter(entry.change for entry in view.entries)
    texts = [count_noun(counts.pop(change), *nouns) for change, nouns in _NOUNS.items() if counts[change]]
    texts += [count_noun(counts.total(), "other change")] if counts.total() else []
    first = "" if view.is_complete else "the latest: "
    return f"{first}{', '.join(texts)}{_since_record(view)}"


def _since_record(view: HistoryView) -> str:
    """Return since when changes are recorded; empty if that is the whole time."""
    return f"; recorded since {api_time(view.recorded_since)}" if view.recorded_since > view.since else ""


def _row(entry: HistoryEntry, view: HistoryView) -> tuple[str, ...]:
    day, time = entry.at[:10], f"{entry.at[11:16]} UTC"
    shown = time if day == view.at[:10] else f"{day} {time}"
    return (
        element("time", shown, datetime=entry.at, title=api_time(entry.at)),
        element("b", entry.change, class_=CHANGE_STYLES.get(entry.change, False)),
        _subject(entry),
        "; ".join((entry.text, *entry.details)),
    )


def _subject(entry: HistoryEntry) -> Html:
    """Return a link to what a change is about."""
    if entry.incident and entry.change != "resolved":
        name = entry.node or entry.domain or entry.incident
        return link(incident_path(entry.incident), name)
    if entry.change == "deleted":
        return escape(entry.node)
    if entry.node:
        return link(node_path(entry.node), entry.node)
    return link(domain_path(entry.domain), entry.domain) if entry.domain else EMPTY


def _drawing(view: HistoryView) -> Html:
    """Return a row for each kind of change, with a bar for each half hour with one."""
    begin = parse_or_zero(view.at) - PERIOD
    slots: dict[tuple[str, int], list[HistoryEntry]] = {}
    for entry in view.entries:
        slot = min(max(0, int((parse_or_zero(entry.at) - begin) / _SLOT)), _SLOTS - 1)
        slots.setdefault((_LANE_OF.get(entry.change, _OTHERS), slot), []).append(entry)
    lanes = [lane for lane in _LANES if any(lane == of for of, _ in slots)]
    bars = [
        Bar(lanes.index(lane), slot / _SLOTS, (slot + 1) / _SLOTS, _LANES[lane].style, _bar_title(entries))
        for (lane, slot), entries in slots.items()
    ]
    return chart(lanes, bars, 8, "24 hours ago", "Changes by kind; the table has the latest")


def _bar_title(entries: Sequence[HistoryEntry]) -> str:
    first = entries[0]
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"{api_time(first.at)}: {first.text}{more}"
