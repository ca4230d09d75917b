"""Counters of a target: their increases, and which of these the hardware can have counted. Pure.

A reading that rises further than its hardware can count is a misreading: all ones of a device that does not
answer, another width, or memory that is not a counter. It is no fault, and the counter is not trusted until
its value is plausible again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from msgspec.structs import replace

from nodeguard.judge.state import CounterIncrease, CounterState, DoubtfulIncrease
from nodeguard.model.signal import Signal

_NO_SIGNALS: dict[str, Signal] = {}
_UNLIMITED = Signal("", "counter", "")

# Seconds between two readings that count at least: hardware and drivers update counters in steps.
_SHORTEST_GAP = 1.0

# Increases kept for one counter. Older ones are merged in pairs: sums stay exact, times become coarse.
_MAX_INCREASES = 32


def update_counters(
    counters: dict[str, CounterState],
    spans: Mapping[str, float],
    signals: Mapping[str, object],
    previous: float | None,
    now: float,
    definitions: Mapping[str, Signal] = _NO_SIGNALS,
) -> dict[str, CounterState]:
    """Return the counters of a target after a reading.

    spans: the longest window in seconds, of each counter that a check uses. previous: seconds since boot of
    the source's reading before, None without one or where the baseline belongs to another epoch. now: seconds
    since boot. definitions: of the counters, with their limits. A lower value is a reset: it adds no increase
    and removes none. A gap of more than twice the longest window starts a new baseline, because an increase
    in it has no known time.
    """
    changed: dict[str, CounterState] = {}
    for name, span in spans.items():
        value = signals.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        number, definition = float(value), definitions.get(name, _UNLIMITED)
        before = counters.get(name) if previous is not None else None
        if before is None or previous is None or now - previous > 2 * span:
            changed[name] = _first(number, now, definition)
        elif number < before.value:
            changed[name] = _dropped(before, number, now, definition)
        elif number > before.value:
            changed[name] = _risen(before, number, now, previous, span, definition)
    return {**counters, **changed} if changed else counters


def _first(value: float, now: float, definition: Signal) -> CounterState:
    """Return a counter after its first reading, which may be higher than the time since boot allows."""
    if _is_possible(value, now, definition):
        return CounterState(value, now)
    return CounterState(value, now, doubt=DoubtfulIncrease(now, value, now, 0.0))


def _dropped(before: CounterState, value: float, now: float, definition: Signal) -> CounterState:
    """Return a counter after its value dropped. It is trusted again if the value is plausible by itself."""
    doubt = before.doubt
    if doubt is not None and _is_possible(value - doubt.trusted, now - doubt.at + doubt.gap, definition):
        doubt = None
    return replace(
        before, value=value, resets=before.resets + 1, doubt=doubt, dropped_at=now, dropped_from=before.value
    )


def _risen(
    before: CounterState, value: float, now: float, previous: float, span: float, definition: Signal
) -> CounterState:
    """Return a counter after its value rose.

    A single low reading between two high ones is a misreading: only what is above the first one has risen.
    """
    is_misread = before.dropped_at >= previous and value >= before.dropped_from
    by, gap = value - (before.dropped_from if is_misread else before.value), now - previous
    increases = tuple(increase for increase in before.increases if increase.at > now - span)
    doubt = before.doubt
    if is_saturated(value, definition.bits) or not _is_possible(by, gap, definition):
        doubt = DoubtfulIncrease(now, by, gap, before.value if doubt is None else doubt.trusted)
    elif by and (doubt is None or doubt.at <= now - span):
        increases = (*increases, CounterIncrease(now, by, gap))
    if len(increases) > _MAX_INCREASES:
        half = _MAX_INCREASES // 2
        increases = (*_merge_pairs(increases[:half]), *increases[half:])
    return replace(before, value=value, increases=increases, doubt=doubt)


def _is_possible(by: float, seconds: float, definition: Signal) -> bool:
    """Return whether hardware can have counted an increase in a time."""
    return not definition.max_rate or by <= definition.max_rate * max(seconds, _SHORTEST_GAP)


def _merge_pairs(increases: tuple[CounterIncrease, ...]) -> tuple[CounterIncrease, ...]:
    """Return neighbours merged in pairs, each pair at its later time."""
    pairs = zip(increases[::2], increases[1::2], strict=False)
    rest = increases[len(increases) - len(increases) % 2 :]
    merged = (
        CounterIncrease(second.at, first.by + second.by, max(first.gap, second.gap))
        for first, second in pairs
    )
    return (*merged, *rest)


def increase_within(counter: CounterState, over: float, now: float, cleared: float = -inf) -> float:
    """Return the increase of a counter within the last `over` seconds, without increases of unknown time.

    cleared: seconds since boot up to which an operator cleared it.
    """
    if not counter.increases:
        return 0.0
    start, max_gap = max(now - over, cleared), 2 * over
    return sum(
        [increase.by for increase in counter.increases if increase.at > start and increase.gap <= max_gap]
    )


def first_expiry_of_increase(counter: CounterState, over: float, now: float) -> float:
    """Return when the first increase leaves the window, in seconds since boot; infinity for never."""
    in_window = (increase.at for increase in counter.increases if increase.at > now - over)
    return next(in_window, inf) + over


def has_unplaced_increase(counter: CounterState, over: float, now: float, cleared: float = -inf) -> bool:
    """Return whether it rose in a gap of more than twice the window, at an unknown time within it."""
    start, max_gap = max(now - over, cleared), 2 * over
    return any(increase.gap > max_gap and increase.at > start for increase in counter.increases)


def is_saturated(value: object, bits: int) -> bool:
    """Return whether a counter of this width is at its maximum, where it cannot rise any more."""
    return bits > 0 and value == (1 << bits) - 1
