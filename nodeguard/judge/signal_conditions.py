"""Conditions that look at a signal themselves, each turned once into a function. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from nodeguard.judge.context import (
    FALSE,
    NOT_APPLICABLE,
    TRUE,
    UNKNOWN,
    ConditionReason,
    ConditionTest,
    EvaluationContext,
)
from nodeguard.judge.counters import has_unplaced_increase, increase_within, is_saturated
from nodeguard.judge.events import active_events
from nodeguard.judge.formatting import format_value, unit_of
from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import ClearSign, Compare, EventOccurred, Increase, Reference
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


def compile_comparison(condition: Compare, units: Mapping[str, str]) -> ConditionTest:
    """A reading against a constant or a reference. units: by signal, to tell of it."""
    signal, than, constant = condition.signal, condition.than, condition.value
    by = -condition.by if condition.operator in {"below", "at_most"} else condition.by
    holds, unit = _OPERATORS[condition.operator], unit_of(signal, units)

    def tell(view: EvaluationContext) -> Evidence:
        value = view.signals[signal]
        what = f"{signal} = {format_value(value, unit)}"
        if than is not None:
            other = _reference(view, than)
            other = bool(other) if isinstance(value, bool) else other
            what += f" ({_NAMES.get(than.of, than.name)} {format_value(other, unit)})"
        return Evidence(view.source_of(signal), what, view.wall)

    def test(view: EvaluationContext) -> int:
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
            view.unreadable.append(
                (signal, f"{format_value(value, unit)} and {format_value(limit)} have no order")
            )
            return UNKNOWN
        view.reasons.append(ConditionReason(view.now, tell))
        return TRUE

    return test


def _reference(view: EvaluationContext, than: Reference) -> Any:
    if than.of == "platform":
        return view.expect.get(than.name)
    return view.signals.get(than.name if than.of == "signal" else f"{than.name}~{than.of}")


def _missing(view: EvaluationContext, signal: str) -> int:
    """Outcome for a signal without a value: unknown where it should have one, else it does not apply."""
    why = view.unread.get(signal)
    if why is None:
        return NOT_APPLICABLE
    view.unreadable.append((signal, why))
    return UNKNOWN


def compile_increase(condition: Increase, units: Mapping[str, str]) -> ConditionTest:
    """A counter that rose. units: by signal, to tell of it."""
    signal, by, over, bits = condition.signal, condition.by, condition.over, condition.bits
    unit = unit_of(signal, units)

    def tell(view: EvaluationContext) -> Evidence:
        counter = view.counters[signal]
        risen = format_value(increase_within(counter, over, view.now, view.cleared_at), unit)
        what = f"{signal} rose by {risen} to {format_value(counter.value, unit)}"
        what += f", set back {counter.resets} times" if counter.resets else ""
        return Evidence(view.source_of(signal), what, view.to_wall_clock(counter.increases[-1].at))

    def test(view: EvaluationContext) -> int:
        counter = view.counters.get(signal)
        if counter is None or signal not in view.signals:
            return _missing(view, signal)
        if counter.increases and increase_within(counter, over, view.now, view.cleared_at) >= by:
            start = max(view.now - over, view.cleared_at)
            view.reasons.append(
                ConditionReason(min(one.at for one in counter.increases if one.at > start), tell)
            )
            return TRUE
        if is_saturated(counter.value, bits):
            view.unreadable.append((signal, "stands at its maximum and can rise no more"))
            return UNKNOWN
        if counter.increases and has_unplaced_increase(counter, over, view.now, view.cleared_at):
            view.unreadable.append((signal, "rose while nobody read it, too long ago to say when"))
            return UNKNOWN
        if counter.since == view.now:
            view.pending.append(signal)
            return UNKNOWN
        return FALSE

    return test


def compile_event_condition(condition: EventOccurred, clears: tuple[ClearSign, ...]) -> ConditionTest:
    """An event that nothing has cleared."""

    def seen(event: RememberedEvent, view: EvaluationContext) -> ConditionReason:
        def tell(view: EvaluationContext) -> Evidence:
            return Evidence(
                event.source, event.text or event.signal, view.to_wall_clock(event.last), event.count
            )

        start = view.now - condition.over
        since = min(at for at in (*event.times, event.last) if at > start) if condition.over else event.first
        return ConditionReason(since, tell, event)

    def test(view: EvaluationContext) -> int:
        if view.events:
            events = active_events(view.events, condition, clears, view.signs, view.now)
            if events:
                view.reasons.extend(seen(event, view) for event in events)
                return TRUE
        return outcome_without_event(view.statuses)

    return test


def outcome_without_event(statuses: Mapping[str, str]) -> int:
    """What it comes to that no event happened. statuses: how each source's latest round ended."""
    status = statuses.get(_TELLS_OF_EVENTS, "absent")
    if status == "absent":
        return NOT_APPLICABLE
    return FALSE if status == "read" else UNKNOWN
