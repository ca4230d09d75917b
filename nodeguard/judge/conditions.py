"""Conditions, turned once into functions that look at a slot."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from nodeguard.judge.counters import rise, saturated
from nodeguard.judge.events import matching
from nodeguard.judge.outcome import FALSE, NOT_APPLICABLE, TRUE, UNKNOWN, all_of, any_of
from nodeguard.judge.view import Seen, View
from nodeguard.model.check import Compare, Condition, Every, Happened, Increase, Reference, Sign, Sustained
from nodeguard.model.finding import Evidence

Test = Callable[[View], int]

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


def prepare(condition: Condition, key: str, clears: tuple[Sign, ...], event_sources: dict[str, str]) -> Test:
    """A function that evaluates the condition on a View and leaves there what it saw.

    key: names the condition in the slot's memory. clears: signs that end events. event_sources: event signal
    → source that must be readable for its silence to mean anything.
    """
    match condition:
        case Compare():
            return _compare(condition)
        case Increase():
            return _increase(condition)
        case Happened():
            return _happened(condition, clears, event_sources.get(condition.event, ""))
        case Sustained():
            return _sustained(condition, prepare(condition.condition, f"{key}.0", clears, event_sources), key)
    tests = [prepare(part, f"{key}.{at}", clears, event_sources) for at, part in enumerate(condition.of)]
    return _combined(tests, every=isinstance(condition, Every))


def _combined(tests: list[Test], *, every: bool) -> Test:
    def test(view: View) -> int:
        outcomes = []
        shorts: list[tuple[float, float] | None] = []
        for part in tests:
            reasons, view.short = len(view.seen), None
            outcome = part(view)
            outcomes.append(outcome)
            if outcome == TRUE:
                shorts.append(view.short)
            else:
                del view.seen[reasons:]
        # One part that was told of early makes all of them early; one that was not makes any of them certain.
        early = [short for short in shorts if short is not None]
        view.short = early[0] if early and (every or len(early) == len(shorts)) else None
        return all_of(outcomes) if every else any_of(outcomes)

    return test


def _compare(condition: Compare) -> Test:
    signal, than, by = condition.signal, condition.than, condition.by
    holds = _OPERATORS[condition.operator]
    if condition.operator in {"below", "at_most"}:
        by = -by

    def test(view: View) -> int:
        value = view.signals.get(signal)
        if value is None:
            return _missing(view, signal)
        limit: Any = condition.value
        if than is not None:
            limit = _reference(view, than)
            if limit is None:
                return _missing(view, than.name)
            if by:
                limit += by
        if not holds(value, limit):
            return FALSE
        what = f"{signal} = {shown(value)}"
        if than is not None:
            other = _reference(view, than)
            other = bool(other) if isinstance(value, bool) else other
            what += f" ({_NAMES.get(than.of, than.name)} {shown(other)})"
        view.seen.append(Seen(view.now, Evidence(view.source_of(signal), what, view.wall)))
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


def _increase(condition: Increase) -> Test:
    signal, by, over, bits = condition.signal, condition.by, condition.over, condition.bits

    def test(view: View) -> int:
        counter = view.counters.get(signal)
        if counter is None or signal not in view.signals:
            return _missing(view, signal)
        risen = rise(counter, over, view.now)
        if risen >= by:
            what = f"{signal} rose by {shown(risen)} to {shown(counter.value)}"
            evidence = Evidence(view.source_of(signal), what, view.wall_of(counter.risen[-1][0]))
            view.seen.append(Seen(_first(over, view.now, (at for at, _ in counter.risen)), evidence))
            return TRUE
        if saturated(counter.value, bits):
            view.missing.append((signal, "stands at its maximum and can rise no more"))
            return UNKNOWN
        if counter.since == view.now:
            view.pending.append(signal)
            return UNKNOWN
        return FALSE

    return test


def _happened(condition: Happened, clears: tuple[Sign, ...], source: str) -> Test:
    def test(view: View) -> int:
        events = matching(view.events, condition, clears, view.signs, view.now) if view.events else ()
        for event in events:
            what = event.text or event.signal
            evidence = Evidence(event.source, what, view.wall_of(event.last), event.count)
            times = (*event.times, event.last)
            since = _first(condition.over, view.now, times) if condition.over else event.first
            view.seen.append(Seen(since, evidence, event))
        if events:
            return TRUE
        state = view.sources.get(source)
        if state is None or state.status == "absent":
            return NOT_APPLICABLE
        return FALSE if state.status == "read" else UNKNOWN

    return test


def _sustained(condition: Sustained, inner: Test, key: str) -> Test:
    seconds, seen_once = condition.seconds, condition.seen_once

    def test(view: View) -> int:
        reasons = len(view.seen)
        outcome = inner(view)
        if outcome == UNKNOWN and key in view.held:
            view.holding[key] = view.held[key]
        if outcome != TRUE:
            return outcome
        since = view.holding[key] = view.held.get(key, view.now)
        view.seen[reasons:] = (
            Seen(min(reason.since, since), reason.evidence, reason.event) for reason in view.seen[reasons:]
        )
        if view.now - since >= seconds:
            return TRUE
        if view.one_look and seen_once and since <= view.first:
            view.short = (view.now - since, seconds)
            return TRUE
        return FALSE

    return test


def _first(over: float, now: float, moments: Iterable[float]) -> float:
    """The first of some moments that lies within the last `over` seconds."""
    return min(at for at in moments if at > now - over)


def shown(value: object) -> str:
    """A value as a person reads it: no trailing zeros, truths as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    if isinstance(value, tuple):
        return ", ".join(shown(part) for part in value)
    return str(value)
