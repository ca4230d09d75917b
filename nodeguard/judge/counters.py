"""Counters: baselines, rises, falls, saturation. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.judge.state import Counter

# Rises kept for one counter; older ones are merged two by two, so that sums stay true while moments grow
# coarse.
_KEPT = 32


def advance(
    counters: dict[str, Counter],
    spans: Mapping[str, float],
    signals: Mapping[str, object],
    previous: float | None,
    now: float,
) -> dict[str, Counter]:
    """Counters of a slot after a reading.

    spans: for each counter that some check watches, its longest window in seconds. previous: when the source
    read this slot before, None where it did not or where the baseline belongs to another epoch; now: seconds
    since boot. A value lower than before starts a new baseline and counts no rise. A gap of more than twice
    the window starts a new baseline: what happened in it cannot be placed in time.
    """
    changed: dict[str, Counter] = {}
    for name, span in spans.items():
        value = signals.get(name)
        if value is None or isinstance(value, (str, bool)):
            continue
        number = float(value)  # type: ignore[arg-type]
        old = counters.get(name) if previous is not None else None
        if old is None or (previous is not None and now - previous > 2 * span):
            changed[name] = Counter(number, now)
        elif number != old.value:
            changed[name] = _moved(old, number, now, span)
    return {**counters, **changed} if changed else counters


def _moved(old: Counter, value: float, now: float, span: float) -> Counter:
    """The counter after its value changed."""
    if value < old.value:
        return Counter(value, now, (), old.fell + 1)
    risen = tuple(rise for rise in old.risen if rise[0] > now - span)
    risen = (*risen, (now, value - old.value))
    if len(risen) > _KEPT:
        risen = (*_merged(risen[: _KEPT // 2]), *risen[_KEPT // 2 :])
    return Counter(value, old.since, risen, old.fell)


def _merged(risen: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Neighbours merged two by two, each pair at its later moment."""
    pairs = zip(risen[::2], risen[1::2], strict=False)
    rest = risen[len(risen) - len(risen) % 2 :]
    return (*((later[0], earlier[1] + later[1]) for earlier, later in pairs), *rest)


def rise(counter: Counter, over: float, now: float) -> float:
    """How much a counter rose within the last `over` seconds."""
    if not counter.risen:
        return 0.0
    return sum(by for at, by in counter.risen if at > now - over)


def saturated(value: object, bits: int) -> bool:
    """Whether a counter of so many bits stands at its maximum, where it can rise no more."""
    return bits > 0 and value == (1 << bits) - 1
