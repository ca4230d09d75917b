"""Lemons: parts that fail again and again, far more often than parts of their fleet do. Pure.

Times are seconds since the epoch: what is known of a part outlives whoever knows it, and its node.
"""

from __future__ import annotations

from math import fsum

from msgspec import Struct

from nodeguard.fleet.diagnosis.significance import poisson_limit

DAY = 86_400.0

# Seconds after which a fault counts half; for which it is remembered; within which two are one.
HALF_LIFE = 30 * DAY
RETENTION = 180 * DAY
_ONE = 600.0

# Faults that are remembered of a part, the latest; halvings that a float still tells apart.
_EACH, _FAR = 64, 500.0


class ComponentFaults(Struct):
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

    def weight(self, now: float) -> tuple[int, float]:
        """How many faults are remembered, and what they come to."""
        ages = [age for began, _ in self.spans if (age := max(0.0, now - began)) <= RETENTION]
        return len(ages), fsum(map(remaining_weight, ages))


def remaining_weight(age: float) -> float:
    """What is left of one after some seconds; more than one before."""
    return float(2.0 ** max(-_FAR, min(_FAR, -age / HALF_LIFE)))


# Faults that a lemon has had at least, and what they come to at least; how many times worse than the fleet it
# has to be, and the chance that it is not: there are a hundred thousand parts to be wrong about.
_FAULTS, _WEIGHT = 3, 2.5
_TIMES, _CHANCE = 3.0, 1e-6

# Parts that are known.
_PARTS = 200_000


class RepeatOffender(Struct, frozen=True):
    """A part that is to be replaced.

    node, slot: where it was seen last. faults: since a moment, which is when the part was first seen, or as
    long ago as faults are remembered. expected: how many a part of this fleet has in that time. check: what
    told of the latest, at that moment.
    """

    part: str
    node: str
    slot: str
    faults: int
    expected: float
    check: str
    at: float
    since: float


class FaultHistory:
    """What is known of parts, by their ids; it is the same in whichever order it was told."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._pasts: dict[str, ComponentFaults] = {}
        # All moments of `_first` as halvings that they undo, counted from the first of them that was told.
        self._origin: float | None = None
        self._sum = 0.0

    def record_component(self, part: str, at: float, node: str = "", slot: str = "") -> None:
        """A part is there; node, slot: where, empty for not known."""
        if self._origin is None:
            self._origin = at
        first = self._first.pop(part, None)
        if first is None and len(self._first) >= _PARTS:
            self._drop(next(iter(self._first)))
        # Whoever was seen last stands last, and is dropped last.
        now = self._first[part] = at if first is None else min(first, at)
        if first != now:
            self._sum += self._undone(now) - (0.0 if first is None else self._undone(first))
        past = self._pasts.get(part)
        if past is not None and node and at >= past.seen:
            past.node, past.slot, past.seen = node, slot, at

    def record_fault(self, part: str, node: str, slot: str, check: str, at: float) -> None:
        """A fault began on a part, in a slot of a node, and a check told of it."""
        self.record_component(part, at)
        past = self._pasts.setdefault(part, ComponentFaults(node, slot, at, check, at))
        past.at, past.check = max((past.at, past.check), (at, check))
        if at >= past.seen:
            past.node, past.slot, past.seen = node, slot, at
        past.add(((at, at),))

    def merge(self, other: FaultHistory) -> None:
        """All that others know, too."""
        for part, first in other._first.items():
            self.record_component(part, first)
        for part, past in other._pasts.items():
            self.record_fault(part, past.node, past.slot, past.check, past.at)
            self.record_component(part, past.seen, past.node, past.slot)
            self._pasts[part].add(past.spans)

    def forget(self, now: float) -> None:
        """Let go of faults that are too old to matter."""
        for part, past in list(self._pasts.items()):
            past.spans = tuple(one for one in past.spans if now - one[1] <= RETENTION)
            if not past.spans:
                del self._pasts[part]

    def repeat_offenders(self, now: float) -> tuple[RepeatOffender, ...]:
        """The lemons at a moment, the worst first."""
        counts = {part: past.weight(now) for part, past in self._pasts.items()}
        lived, found = self._lived(now), []
        # A clock that was put back tells nothing of how often anything happens.
        if lived <= 0.0:
            return ()
        rate = fsum(weight for _, weight in counts.values()) / lived
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
            one = RepeatOffender(part, past.node, past.slot, faults, expected, past.check, past.at, since)
            found.append((-weight, part, one))
        return tuple(one for _, _, one in sorted(found, key=lambda each: each[:2]))

    def _lived(self, now: float) -> float:
        """What the time comes to for which all parts were seen, where the latest counts most."""
        if self._origin is None:
            return 0.0
        return HALF_LIFE * (len(self._first) - remaining_weight(now - self._origin) * self._sum)

    def _undone(self, at: float) -> float:
        return remaining_weight((self._origin or 0.0) - at)

    def _drop(self, part: str) -> None:
        self._sum -= self._undone(self._first.pop(part))
        self._pasts.pop(part, None)
