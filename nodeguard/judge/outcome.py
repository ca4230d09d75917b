"""What a condition can come to, and how outcomes combine."""

from __future__ import annotations

from collections.abc import Iterable

# Ordered so that the highest of some is what `any` of them comes to.
NOT_APPLICABLE = 0
FALSE = 1
UNKNOWN = 2
TRUE = 3

# Ordered so that the lowest of some is what `all` of them comes to: one that is false settles it, one that
# does not apply takes the whole out of play, one that is unknown leaves the whole unknown.
_FOR_ALL = (FALSE, NOT_APPLICABLE, UNKNOWN, TRUE)
_PLACE = {outcome: place for place, outcome in enumerate(_FOR_ALL)}


def any_of(outcomes: Iterable[int]) -> int:
    """Outcome of `any`: true where one is, else unknown where one is, else false where one is."""
    return max(outcomes, default=NOT_APPLICABLE)


def all_of(outcomes: Iterable[int]) -> int:
    """Outcome of `all`: false where one is, else not applicable where one is, else unknown where one is."""
    return _FOR_ALL[min((_PLACE[outcome] for outcome in outcomes), default=1)]
