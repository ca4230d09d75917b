"""How often something begins, as the fleet has shown of late. Pure."""

from __future__ import annotations

from math import exp

# Seconds after which what was seen counts for about a third of itself; and seconds of observation that what
# is thought beforehand is worth.
_MEMORY = 7 * 86_400.0
_WORTH = 86_400.0


class Rate:
    """Onsets of one node a second."""

    def __init__(self) -> None:
        self._many = 0.0
        self._looked = 0.0
        self._at: float | None = None

    def begin(self, at: float) -> None:
        """It is looked at from then on, unless it was before. at: seconds of a clock that never jumps."""
        if self._at is None:
            self._at = at

    def count(self, now: float) -> None:
        """One has begun. now: seconds of a clock that never jumps."""
        self._pass(now)
        self._many += 1.0

    def of_each(self, nodes: int, now: float, before: float, more: tuple[int, float] = (0, 0.0)) -> float:
        """Onsets of one of so many nodes a second. before: what is thought of it while little is seen yet.
        more: what was seen besides, and in how many seconds.
        """
        self._pass(now)
        seen = (self._many + more[0]) / max(1, nodes)
        return (before * _WORTH + seen) / (_WORTH + self._looked + more[1])

    def _pass(self, now: float) -> None:
        if self._at is None:
            self._at = now
        if now > self._at:
            left = exp((self._at - now) / _MEMORY)
            self._many *= left
            self._looked = self._looked * left + _MEMORY * (1.0 - left)
            self._at = now
