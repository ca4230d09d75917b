"""When which source is to be read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from nodeguard.sources.source import Source

# Seconds by which a sum of moments may miss one of them.
_ROUNDING = 1e-3


class Agenda:
    """The rounds of some sources, each at its own interval; those of a long one with those of a shorter one
    that it is a multiple of, since what is read together is judged once.

    offset: a part of the shortest interval, from 0 to 1, by which the node's rounds are late: jitter, so that
    no two nodes keep time. Times are seconds of one clock that never jumps.
    """

    def __init__(self, sources: Sequence[Source], offset: float) -> None:
        self._sources = tuple(sources)
        self._late = offset * min((one.interval for one in sources), default=0.0)
        self._due: dict[str, float] = {}

    def due(self, now: float) -> list[Source]:
        """Sources to be read now; all of them the first time. What was missed is not made up for."""
        wanted = [one for one in self._sources if self._due.get(one.name, now) <= now]
        for one in wanted:
            past = (now - self._late + _ROUNDING) // one.interval
            self._due[one.name] = (past + 1) * one.interval + self._late
        return wanted

    def next(self) -> float:
        """When something is due again; infinity where there is nothing to read."""
        return min(self._due.values(), default=inf)


def ages(ended: Mapping[str, float], now: float) -> dict[str, float]:
    """Seconds since each source's latest round. ended: when that was, by source."""
    return {name: now - at for name, at in ended.items()}
