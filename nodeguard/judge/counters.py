"""Counters of a target: baselines, increases in windows, resets and saturation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from nodeguard.judge.state import CounterIncrease, CounterState

# Increases kept for one counter. Older ones are merged in pairs: sums stay exact, times become coarse.
_MAX_INCREASES = 32


def update_counters(
    counters: dict[str, CounterState],
    spans: Mapping[str, float],
    signals: Mapping[str, object],
    previous: float | None,
    now: float,
) -> dict[str, CounterState]:
    """Return the counters of a target after a reading.

    spans: the longest window in seconds, of each counter that a check uses. previous: seconds since boot of
    the source's reading before, None without one or where the baseline belongs to another epoch. now: seconds
    since boot. A lower value is a reset: it adds no increase and removes none. A gap of more than twice the
    longest window starts a new baseline, because an increase in it has no known time.
    """
    changed: dict[str, CounterState] = {}
    for name, span in spans.items():
        value = signals.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        number = float(value)
        before = counters.get(name) if previous is not None else None
        if before is None or (previous is not None and now - previous > 2 * span):
            changed[name] = CounterState(number, now)
        elif number != before.value:
            gap = now - (previous if previous is not None else now)
            changed[name] = _changed(before, number, now, gap, span)
    return {**counters, **changed} if changed else counters


def _changed(before: CounterState, value: float, now: float, gap: float, span: float) -> CounterState:
    """Return the counter after its value changed. gap: seconds since the reading before."""
    increases = tuple(increase for increase in before.increases if increase.at > now - span)
    if value < before.value:
        return CounterState(value, before.since, increases, before.resets + 1)
    increases = (*increases, CounterIncrease(now, value - before.value, gap))
    if len(increases) > _MAX_INCREASES:
        half = _MAX_INCREASES // 2
        increases = (*_merge_pairs(increases[:half]), *increases[half:])
    return CounterState(value, before.since, increases, before.resets)


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


def has_unplaced_increase(counter: CounterState, over: float, now: float, cleared: float = -inf) -> bool:
    """Whether it rose in a gap of more than twice the window, so that the time within it is unknown."""
    start, max_gap = max(now - over, cleared), 2 * over
    return any(increase.gap > max_gap and increase.at > start for increase in counter.increases)


def is_saturated(value: object, bits: int) -> bool:
    """Whether a counter of this width is at its maximum, where it cannot rise any more."""
    return bits > 0 and value == (1 << bits) - 1
