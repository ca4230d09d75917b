"""The faults of one part: how many there were, and what they come to by now. Pure.

Times are seconds since the epoch.
"""

from __future__ import annotations

from math import fsum

from msgspec import Struct

DAY = 86_400.0

# Seconds after which a fault counts half; for which it is remembered; within which two are one.
HALF = 30 * DAY
REMEMBERED = 180 * DAY
_ONE = 600.0

# Faults that are remembered of a part, the latest; halvings that a float still tells apart.
_EACH, _FAR = 64, 500.0


class Past(Struct):
    """A part that has failed. node, slot: where it was seen last, and when. check: what told of the latest
    fault, which began at a moment. spans: from when to when faults began that count as one, the first first.
    """

    node: str
    slot: str
    seen: float
    check: str
    at: float
    spans: tuple[tuple[float, float], ...] = ()

    def add(self, spans: tuple[tuple[float, float], ...]) -> None:
        """Faults that began there, too; those that are close to each other are one."""
        found: list[tuple[float, float]] = []
        for start, end in sorted((*self.spans, *spans)):
            if found and start - found[-1][1] < _ONE:
                found[-1] = found[-1][0], max(end, found[-1][1])
            else:
                found.append((start, end))
        self.spans = tuple(found[-_EACH:])

    def counted(self, now: float) -> tuple[int, float]:
        """How many faults are remembered, and what they come to."""
        ages = [age for began, _ in self.spans if (age := max(0.0, now - began)) <= REMEMBERED]
        return len(ages), fsum(map(left, ages))


def left(age: float) -> float:
    """What is left of one after some seconds; more than one before."""
    return float(2.0 ** max(-_FAR, min(_FAR, -age / HALF)))
