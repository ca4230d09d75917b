"""Significance: the probability that votes and onsets are chance. Pure."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import exp, inf, lgamma, log, log1p


def significance(voters: int, members: int, chance: float) -> float:
    """Return the negative logarithm of the probability of at least so many votes, if each member votes with
    probability `chance`: the tail of a binomial distribution. 0 for no more votes than expected.
    """
    if voters <= chance * members:
        return 0.0
    if chance <= 0.0:
        return inf
    rest = members - voters
    first = lgamma(members + 1) - lgamma(voters + 1) - lgamma(rest + 1)
    first += voters * log(chance) + rest * log1p(-chance)
    term = total = 1.0  # of the tail, as a multiple of its first term
    for votes in range(voters, members):
        term *= (members - votes) / (votes + 1) * chance / (1.0 - chance)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return -(first + log(total))


_NEGLIGIBLE = 1e-9


def fewest_significant(members: int, chance: float, exponent: float) -> int:
    """Return the minimum number of voters with this significance; members + 1 if there is none."""
    numbers = range(1, members + 1)
    return 1 + bisect_left(numbers, exponent, key=lambda voters: significance(voters, members, chance))


@lru_cache(maxsize=4096)
def poisson_limit(mean: float, chance: float) -> int:
    """Return the smallest number that a Poisson variable exceeds with at most this probability."""
    if mean > _MAX_POISSON_MEAN:
        # Far from zero the tail is that of a normal variable; six deviations are rarer than one in a million.
        return int(mean + 6.0 * mean**0.5) + 1
    term = total = exp(-mean)
    many = 0
    while 1.0 - total > chance and many < _MAX_COUNT:
        many += 1
        term *= mean / many
        total += term
    return many


_MAX_POISSON_MEAN, _MAX_COUNT = 500.0, 2_000


# Seconds after which observations count for about a third; and the weight of the prior rate, in seconds of
# observation.
_MEMORY = 7 * 86_400.0
_WORTH = 86_400.0


class OnsetRate:
    """The rate of onsets of one node a second, from recent observation."""

    def __init__(self) -> None:
        self._many = 0.0
        self._looked = 0.0
        self._at: float | None = None

    def begin(self, at: float) -> None:
        """Begin the observation, unless it began before. at: seconds of a clock that never jumps."""
        if self._at is None:
            self._at = at

    def skip(self, until: float) -> None:
        """Leave out the time until then, with its onsets."""
        self._at = until if self._at is None else max(self._at, until)

    def count(self, now: float) -> None:
        """Count an onset. now: seconds of a clock that never jumps."""
        self._pass(now)
        self._many += 1.0

    def per_node(self, nodes: int, now: float, before: float, more: tuple[int, float] = (0, 0.0)) -> float:
        """Return the onsets of one of so many nodes a second. before: the prior rate. more: further onsets,
        and in how many seconds.
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
