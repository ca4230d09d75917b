"""Repeat offenders: components that fail again and again, far more often than others of the fleet. Pure.

Times are seconds since the epoch: the history of a component outlives the process and the node.
"""

from __future__ import annotations

from math import fsum

from msgspec import Struct

from nodeguard.fleet.diagnosis.significance import poisson_limit

DAY = 86_400.0

# Seconds after which a fault counts half; for which it is remembered; within which two count as a single one.
HALF_LIFE = 30 * DAY
RETENTION = 180 * DAY
_ONE = 600.0

# Maximum number of remembered faults of a component; halvings that a float can represent.
_EACH, _FAR = 64, 500.0


class ComponentFaults(Struct):
    """A component that has failed. node, target: its last location, at the time `seen`. check: of the latest
    fault, which began at the time `at`. spans: begin and end of groups of faults that count once, the oldest
    first.
    """

    node: str
    target: str
    seen: float
    check: str
    at: float
    spans: tuple[tuple[float, float], ...] = ()

    def add(self, spans: tuple[tuple[float, float], ...]) -> None:
        """Add faults; those that are close to each other count once."""
        merged: list[tuple[float, float]] = []
        for start, end in sorted((*self.spans, *spans)):
            if merged and start - merged[-1][1] < _ONE:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        self.spans = tuple(merged[-_EACH:])

    def weight(self, now: float) -> tuple[int, float]:
        """Return how many faults are remembered, and their weight."""
        ages = [age for began, _ in self.spans if (age := max(0.0, now - began)) <= RETENTION]
        return len(ages), fsum(map(remaining_weight, ages))


def remaining_weight(age: float) -> float:
    """Return the remaining weight of a fault after some seconds; more than 1 for a negative age."""
    return float(2.0 ** max(-_FAR, min(_FAR, -age / HALF_LIFE)))


# Minimum number and weight of the faults of a repeat offender; minimum factor over the fleet's rate, and the
# probability of a wrong result: a fleet has a hundred thousand components.
_FAULTS, _WEIGHT = 3, 2.5
_TIMES, _CHANCE = 3.0, 1e-6

# Maximum number of components.
_PARTS = 200_000


class RepeatOffender(Struct, frozen=True):
    """A component to replace.

    node, target: its last location. faults: since the time `since`, when the component was first seen or the
    retention begins. expected: how many faults a component of this fleet has in that time. check, at: the
    latest fault.
    """

    part: str
    node: str
    target: str
    faults: int
    expected: float
    check: str
    at: float
    since: float


class FaultHistory:
    """The history of components, by id; it does not depend on the order of the records."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._pasts: dict[str, ComponentFaults] = {}
        # The sum over `_first` of the halvings that each time undoes, relative to the first recorded time.
        self._origin: float | None = None
        self._sum = 0.0

    def record_component(self, part: str, at: float, node: str = "", target: str = "") -> None:
        """Record that a component is present; node, target: its location, empty if unknown."""
        if self._origin is None:
            self._origin = at
        first = self._first.pop(part, None)
        if first is None and len(self._first) >= _PARTS:
            self._drop(next(iter(self._first)))
        # The component that was seen last is the last to be dropped.
        now = self._first[part] = at if first is None else min(first, at)
        if first != now:
            self._sum += self._undone(now) - (0.0 if first is None else self._undone(first))
        past = self._pasts.get(part)
        if past is not None and node and at >= past.seen:
            past.node, past.target, past.seen = node, target, at

    def record_fault(self, part: str, node: str, target: str, check: str, at: float) -> None:
        """Record a fault of a component on a target of a node, which a check found."""
        self.record_component(part, at)
        past = self._pasts.setdefault(part, ComponentFaults(node, target, at, check, at))
        past.at, past.check = max((past.at, past.check), (at, check))
        if at >= past.seen:
            past.node, past.target, past.seen = node, target, at
        past.add(((at, at),))

    def merge(self, other: FaultHistory) -> None:
        """Add the history of another."""
        for part, first in other._first.items():
            self.record_component(part, first)
        for part, past in other._pasts.items():
            self.record_fault(part, past.node, past.target, past.check, past.at)
            self.record_component(part, past.seen, past.node, past.target)
            self._pasts[part].add(past.spans)

    def forget(self, now: float) -> None:
        """Forget faults that are too old."""
        for part, past in list(self._pasts.items()):
            past.spans = tuple(span for span in past.spans if now - span[1] <= RETENTION)
            if not past.spans:
                del self._pasts[part]

    def repeat_offenders(self, now: float) -> tuple[RepeatOffender, ...]:
        """Return the repeat offenders at a time, the worst first."""
        counts = {part: past.weight(now) for part, past in self._pasts.items()}
        component_seconds, offenders = self._lived(now), []
        # A clock that was set back gives no rates.
        if component_seconds <= 0.0:
            return ()
        rate = fsum(weight for _, weight in counts.values()) / component_seconds
        for part, (faults, weight) in counts.items():
            if faults < _FAULTS or weight < _WEIGHT:
                continue
            first, past = self._first[part], self._pasts[part]
            if now <= first or weight <= poisson_limit(
                _TIMES * rate * HALF_LIFE * (1.0 - remaining_weight(now - first)), _CHANCE
            ):
                continue
            since = max(first, now - RETENTION)
            expected = rate * (now - since)
            offender = RepeatOffender(
                part, past.node, past.target, faults, expected, past.check, past.at, since
            )
            offenders.append((-weight, part, offender))
        return tuple(offender for _, _, offender in sorted(offenders, key=lambda ranked: ranked[:2]))

    def _lived(self, now: float) -> float:
        """Return the components' observed time in seconds, with the weight of faults of that age."""
        if self._origin is None:
            return 0.0
        return HALF_LIFE * (len(self._first) - remaining_weight(now - self._origin) * self._sum)

    def _undone(self, at: float) -> float:
        return remaining_weight((self._origin or 0.0) - at)

    def _drop(self, part: str) -> None:
        self._sum -= self._undone(self._first.pop(part))
        self._pasts.pop(part, None)
