"""How likely it is that chance did it. Pure."""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, log


def surprise(voters: int, members: int, chance: float) -> float:
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


def least(members: int, chance: float, surprising: float) -> int:
    """The fewest voters that are so surprising; one more than there are members where not even all are."""
    few, many = 0, members + 1
    while many - few > 1:
        half = (few + many) // 2
        few, many = (few, half) if surprise(half, members, chance) >= surprising else (half, many)
    return many


@lru_cache(maxsize=4096)
def ceiling(mean: float, chance: float) -> int:
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
