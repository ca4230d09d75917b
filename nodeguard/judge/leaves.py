"""Conditions that look at a signal themselves, each turned once into a function. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from nodeguard.judge.counters import rise, saturated, unplaced
from nodeguard.judge.events import matching
from nodeguard.judge.outcome import FALSE, NOT_APPLICABLE, TRUE, UNKNOWN
from nodeguard.judge.state import Occurrence
from nodeguard.judge.view import Seen, Test, View
from nodeguard.judge.words import shown, unit_of
from nodeguard.model.check import Compare, Happened, Increase, Reference, Sign
from nodeguard.model.finding import Evidence

# The source whose silence means that an event did not happen: all events are lines of the kernel log.
_TELLS_OF_EVENTS = "kmsg"

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "is": operator.eq,
    "is_not": operator.ne,
    "in": lambda value, allowed: value in allowed,
    "below": operator.lt,
    "at_most": operator.le,
    "above": operator.gt,
    "at_least": operator.ge,
}
_NAMES = {"platform": "the platform has", "peers": "its peers have", "inventory": "it had"}


def compare(condition: Compare, units: Mapping[str, str]) -> Test:
    """A reading against a constant or a reference. units: by signal, to tell of it."""
    signal, than, constant = condition.signal, condition.than, condition.value
    by = -condition.by if condition.operator in {"below", "at_most"} else condition.by
    holds, unit = _OPERATORS[condition.operator], unit_of(signal, units)

    def tell(view: View) -> Evidence:
        value = view.signals[signal]
        what = f"{signal} = {shown(value, unit)}"
        if than is not None:
            other = _reference(view, than)
            other = bool(other) if isinstance(value, bool) else other
            what += f" ({_NAMES.get(than.of, than.name)} {shown(other, unit)})"
        return Evidence(view.source_of(signal), what, view.wall)

    def test(view: View) -> int:
        value = view.signals.get(signal)
        if value is None:
            return _missing(view, signal)
        limit: Any = constant
        try:
            if than is not None:
                limit = _reference(view, than)
                if limit is None:
                    return _missing(view, than.name)
                if by:
                    limit += by
            if not holds(value, limit):
                return FALSE
        except TypeError:
            view.missing.append((signal, f"{shown(value, unit)} and {shown(limit)} have no order"))
            return UNKNOWN
        view.seen.append(Seen(view.now, tell))
        return TRUE

    return test


def _reference(view: View, than: Reference) -> Any:
    if than.of == "platform":
        return view.expect.get(than.name)
    return view.signals.get(than.name if than.of == "signal" else f"{than.name}~{than.of}")


def _missing(view: View, signal: str) -> int:
    """Outcome for a signal without a value: unknown where it should have one, else it does not apply."""
    why = view.unread.get(signal)
    if why is None:
        return NOT_APPLICABLE
    view.missing.append((signal, why))
    return UNKNOWN


def increase(condition: Increase, units: Mapping[str, str]) -> Test:
    """A counter that rose. units: by signal, to tell of it."""
    signal, by, over, bits = condition.signal, condition.by, condition.over, condition.bits
    unit = unit_of(signal, units)

    def tell(view: View) -> Evidence:
        counter = view.counters[signal]
        risen = shown(rise(counter, over, view.now, view.cleared), unit)
        what = f"{signal} rose by {risen} to {shown(counter.value, unit)}"
        what += f", set back {counter.fell} times" if counter.fell else ""
        return Evidence(view.source_of(signal), what, view.wall_of(counter.risen[-1].at))

    def test(view: View) -> int:
        counter = view.counters.get(signal)
        if counter is None or signal not in view.signals:
            return _missing(view, signal)
        if counter.risen and rise(counter, over, view.now, view.cleared) >= by:
            start = max(view.now - over, view.cleared)
            view.seen.append(Seen(min(one.at for one in counter.risen if one.at > start), tell))
            return TRUE
        if saturated(counter.value, bits):
            view.missing.append((signal, "stands at its maximum and can rise no more"))
            return UNKNOWN
        if counter.risen and unplaced(counter, over, view.now, view.cleared):
            view.missing.append((signal, "rose while nobody read it, too long ago to say when"))
            return UNKNOWN
        if counter.since == view.now:
            view.pending.append(signal)
            return UNKNOWN
        return FALSE

    return test


def happened(condition: Happened, clears: tuple[Sign, ...]) -> Test:
    """An event that nothing has cleared."""

    def seen(event: Occurrence, view: View) -> Seen:
        def tell(view: View) -> Evidence:
            return Evidence(event.source, event.text or event.signal, view.wall_of(event.last), event.count)

        start = view.now - condition.over
        since = min(at for at in (*event.times, event.last) if at > start) if condition.over else event.first
        return Seen(since, tell, event)

    def test(view: View) -> int:
        if view.events:
            events = matching(view.events, condition, clears, view.signs, view.now)
            if events:
                view.seen.extend(seen(event, view) for event in events)
                return TRUE
        return silence(view.statuses)

    return test


def silence(statuses: Mapping[str, str]) -> int:
    """What it comes to that no event happened. statuses: how each source's latest round ended."""
    status = statuses.get(_TELLS_OF_EVENTS, "absent")
    if status == "absent":
        return NOT_APPLICABLE
    return FALSE if status == "read" else UNKNOWN
