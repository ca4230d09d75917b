"""Conditions on one signal compiled to functions. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import inf
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
from nodeguard.judge.counters import (
    first_expiry_of_increase,
    has_unplaced_increase,
    increase_within,
    is_saturated,
)
from nodeguard.judge.events import active_events, first_expiry
from nodeguard.judge.formatting import format_duration, format_value, unit_of
from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import ClearSign, Compare, EventOccurred, Increase, Reference
from nodeguard.model.finding import Evidence
from nodeguard.model.observation import DETACHED

# The source that must have been read before "no event" means "false": events are lines of the kernel log.
_EVENT_SOURCE = "kmsg"

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "is": operator.eq,
    "is_not": operator.ne,
    "in": lambda value, allowed: value in allowed,
    "below": operator.lt,
    "at_most": operator.le,
    "above": operator.gt,
    "at_least": operator.ge,
}
_REFERENCE_NAMES = {"platform": "the platform has", "peers": "its peers have", "inventory": "it had"}


def compile_comparison(condition: Compare, units: Mapping[str, str]) -> ConditionTest:
    """Return the test that compares a signal with a constant or reference. units: by signal, for evidence."""
    signal, reference, constant = condition.signal, condition.than, condition.value
    offset = -condition.by if condition.operator in {"below", "at_most"} else condition.by
    is_true, unit = _OPERATORS[condition.operator], unit_of(signal, units)

    def make_evidence(context: EvaluationContext) -> Evidence:
        value = context.signals[signal]
        text = f"{signal} = {format_value(value, unit)}"
        if reference is not None:
            other = _reference_value(context, reference)
            other = bool(other) if isinstance(value, bool) else other
            text += f" ({_REFERENCE_NAMES.get(reference.of, reference.name)} {format_value(other, unit)})"
        source = context.source_of(signal)
        return Evidence(source, text, context.time_of_reading(source))

    def test(context: EvaluationContext) -> int:
        value = context.signals.get(signal)
        if value is None or _is_doubtful(context, signal, unit):
            return UNKNOWN if value is not None else _outcome_without_value(context, signal)
        limit: Any = constant
        try:
            if reference is not None:
                limit = _reference_value(context, reference)
                if limit is None:
                    return _outcome_without_value(context, reference.name)
                if offset:
                    limit += offset
            if not is_true(value, limit):
                return FALSE
        except TypeError:
            reason = f"{format_value(value, unit)} and {format_value(limit)} have no order"
            context.unreadable.append((signal, reason))
            return UNKNOWN
        context.reasons.append(ConditionReason(context.now, make_evidence))
        return TRUE

    return test


def _reference_value(context: EvaluationContext, reference: Reference) -> Any:
    if reference.of == "platform":
        return context.expect.get(reference.name)
    is_signal = reference.of == "signal"
    return context.signals.get(reference.name if is_signal else f"{reference.name}~{reference.of}")


def _outcome_without_value(context: EvaluationContext, signal: str) -> int:
    """Return unknown where a signal could not be read, and not applicable where it does not exist here."""
    reason = context.unread.get(signal)
    if reason is None:
        return NOT_APPLICABLE
    context.unreadable.append((signal, reason))
    return UNKNOWN


def compile_increase(condition: Increase, units: Mapping[str, str]) -> ConditionTest:
    """Return the test for a counter's increase within a window. units: by signal, for evidence."""
    signal, by, window, bits = condition.signal, condition.by, condition.over, condition.bits
    unit = unit_of(signal, units)

    def make_evidence(context: EvaluationContext) -> Evidence:
        counter = context.counters[signal]
        increase = increase_within(counter, window, context.now, context.cleared_at)
        text = f"{signal} rose by {format_value(increase, unit)} to {format_value(counter.value, unit)}"
        text += f", reset {counter.resets} times" if counter.resets else ""
        at = context.to_wall_clock(counter.increases[-1].at)
        return Evidence(context.source_of(signal), text, at)

    def test(context: EvaluationContext) -> int:
        counter = context.counters.get(signal)
        if counter is None or signal not in context.signals:
            return _outcome_without_value(context, signal)
        cleared_at = context.cleared_at
        context.expire(first_expiry_of_increase(counter, window, context.now))
        if counter.increases and increase_within(counter, window, context.now, cleared_at) >= by:
            start = max(context.now - window, cleared_at)
            since = min(increase.at for increase in counter.increases if increase.at > start)
            context.reasons.append(ConditionReason(since, make_evidence))
            return TRUE
        if is_saturated(counter.value, bits):
            context.unreadable.append((signal, "is at its maximum and cannot rise any more"))
            return UNKNOWN
        if _is_doubtful(context, signal, unit, window):
            return UNKNOWN
        if counter.increases and has_unplaced_increase(counter, window, context.now, cleared_at):
            context.unreadable.append((signal, "rose in a gap between two readings that is too long"))
            return UNKNOWN
        if counter.since == context.now:
            context.pending.append(signal)
            context.expire(context.now)
            return UNKNOWN
        return FALSE

    return test


def _is_doubtful(context: EvaluationContext, signal: str, unit: str, window: float = inf) -> bool:
    """Return whether a counter rose further than hardware can count, in the last seconds; add the reason."""
    counter = context.counters.get(signal)
    doubt = counter.doubt if counter is not None else None
    if doubt is None or doubt.at <= max(context.now - window, context.cleared_at):
        return False
    context.expire(doubt.at + window)
    by, gap = format_value(doubt.by, unit), format_duration(doubt.gap)
    reason = f"rose by {by} within {gap}, which the hardware cannot count: the reading is not trusted"
    context.unreadable.append((signal, reason))
    return True


def compile_event_condition(condition: EventOccurred, clears: tuple[ClearSign, ...]) -> ConditionTest:
    """Return the test for events that no sign has cleared."""

    def reason(event: RememberedEvent, context: EvaluationContext) -> ConditionReason:
        def make_evidence(context: EvaluationContext) -> Evidence:
            text = event.text or event.signal
            return Evidence(event.source, text, context.to_wall_clock(event.last), event.count)

        start = context.now - condition.over
        in_window = (at for at in (*event.times, event.last) if at > start)
        return ConditionReason(min(in_window) if condition.over else event.first, make_evidence, event)

    def test(context: EvaluationContext) -> int:
        if condition.event in context.event_signals:
            context.expire(first_expiry(context.events, condition, context.now))
            events = active_events(context.events, condition, clears, context.signs, context.now)
            outcome = _no_reading_decides(condition, context) if events else FALSE
            if events and outcome != TRUE:
                return outcome
            if events:
                context.reasons.extend(reason(event, context) for event in events)
                return TRUE
        return outcome_without_event(context.statuses)

    return test


def _no_reading_decides(condition: EventOccurred, context: EvaluationContext) -> int:
    """Return whether none of the readings that would decide instead of an event was read.

    Unknown before the first round of a source, and while an operator keeps the target from being read. A
    single evaluation waits for no round: a source without one was not recorded.
    """
    for signal, source in condition.unless_read.items():
        if context.signals.get(signal) is not None:
            return FALSE
        if context.unread.get(signal) == DETACHED:
            return UNKNOWN
        if source not in context.statuses and not context.one_shot:
            return UNKNOWN
    return TRUE


def outcome_without_event(statuses: Mapping[str, str]) -> int:
    """Return the outcome of an event condition without an event. statuses: of each source's latest round."""
    status = statuses.get(_EVENT_SOURCE, "absent")
    if status == "absent":
        return NOT_APPLICABLE
    return FALSE if status == "read" else UNKNOWN
