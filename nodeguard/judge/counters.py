"""Counters: baselines, rises, falls, saturation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from nodeguard.judge.state import CounterIncrease, CounterState

# Rises kept for one counter; older ones are merged two by two, so that sums stay true while moments grow
# coarse.
_KEPT = 32


def update_counters(
    counters: dict[str, CounterState],
    spans: Mapping[str, float],
    signals: Mapping[str, object],
    previous: float | None,
    now: float,
) -> dict[str, CounterState]:
    """Counters of a slot after a reading.

    spans: for each counter that some check watches, its longest window in seconds. previous: when the source
    read this slot before, None where it did not or where the baseline belongs to another epoch; now: seconds
    since boot. A value lower than before counts no rise and takes none back. A gap of more than twice the
    longest window starts a new baseline: what happened in it cannot be placed in time.
    """
    changed: dict[str, CounterState] = {}
    for name, span in spans.items():
        value = signals.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        number = float(value)
        old = counters.get(name) if previous is not None else None
        if old is None or (previous is not None and now - previous > 2 * span):
            changed[name] = CounterState(number, now)
        elif number != old.value:
            changed[name] = _moved(old, number, now, now - (previous if previous is not None else now), span)
    return {**counters, **changed} if changed else counters


def _moved(old: CounterState, value: float, now: float, gap: float, span: float) -> CounterState:
    """The counter after its value changed. gap: seconds since it was read before."""
    risen = tuple(rise for rise in old.increases if rise.at > now - span)
    if value < old.value:
        return CounterState(value, old.since, risen, old.resets + 1)
    risen = (*risen, CounterIncrease(now, value - old.value, gap))
    if len(risen) > _KEPT:
        risen = (*_merged(risen[: _KEPT // 2]), *risen[_KEPT // 2 :])
    return CounterState(value, old.since, risen, old.resets)


def _merged(risen: tuple[CounterIncrease, ...]) -> tuple[CounterIncrease, ...]:
    """Neighbours merged two by two, each pair at its later moment."""
    pairs = zip(risen[::2], risen[1::2], strict=False)
    rest = risen[len(risen) - len(risen) % 2 :]
    return (*(CounterIncrease(two.at, one.by + two.by, max(one.gap, two.gap)) for one, two in pairs), *rest)


def increase_within(counter: CounterState, over: float, now: float, cleared: float = -inf) -> float:
    """How much a counter rose within the last `over` seconds, as far as it can be placed there.

    cleared: the moment up to which a person cleared it.
    """
    if not counter.increases:
        return 0.0
    start, most = max(now - over, cleared), 2 * over
    return sum([one.by for one in counter.increases if one.at > start and one.gap <= most])


def has_unplaced_increase(counter: CounterState, over: float, now: float, cleared: float = -inf) -> bool:
    """Whether it rose in a gap of more than twice the window, so that nobody can say whether within it."""
    start, most = max(now - over, cleared), 2 * over
    return any(one.gap > most and one.at > start for one in counter.increases)


def is_saturated(value: object, bits: int) -> bool:
    """Whether a counter of so many bits stands at its maximum, where it can rise no more."""
    return bits > 0 and value == (1 << bits) - 1
