"""How likely it is that chance did it. Pure."""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, log


def significance(voters: int, members: int, chance: float) -> float:
    """Exponent of Chernoff's bound on the probability that so many of the members vote, or more, where each
    does with a chance of its own: 0 where no more do than is to be expected.
    """
    share = voters / members
    if share <= chance:
        return 0.0
    if chance <= 0.0:
        return inf
    rest = (1.0 - share) * log((1.0 - share) / (1.0 - chance)) if share < 1.0 else 0.0
    return members * (share * log(share / chance) + rest)


def fewest_significant(members: int, chance: float, surprising: float) -> int:
    """The fewest voters that are so surprising; one more than there are members where not even all are."""
    few, many = 0, members + 1
    while many - few > 1:
        half = (few + many) // 2
        few, many = (few, half) if significance(half, members, chance) >= surprising else (half, many)
    return many


@lru_cache(maxsize=4096)
def poisson_limit(mean: float, chance: float) -> int:
    """The least number that a Poisson variable of a mean exceeds with no more than a chance."""
    if mean > _NORMAL:
        # Far from zero the tail is that of a normal variable; six deviations are rarer than one in a million.
        return int(mean + 6.0 * mean**0.5) + 1
    term = total = exp(-mean)
    many = 0
    while 1.0 - total > chance and many < _MOST:
        many += 1
        term *= mean / many
        total += term
    return many


_NORMAL, _MOST = 500.0, 2_000


# Seconds after which what was seen counts for about a third of itself; and seconds of observation that what
# is thought beforehand is worth.
_MEMORY = 7 * 86_400.0
_WORTH = 86_400.0


class OnsetRate:
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

    def per_node(self, nodes: int, now: float, before: float, more: tuple[int, float] = (0, 0.0)) -> float:
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
