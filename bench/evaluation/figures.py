"""Shares with confidence intervals, means, and their intervals by resampling. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct

from nodeguard.simulate.figures import wilson


class Share(Struct, frozen=True):
    """A share, with its confidence interval at 95%."""

    hits: int
    of: int
    low: float
    high: float


def share(hits: int, of: int) -> Share:
    """Return a share with its interval."""
    return Share(hits, of, *wilson(hits, of))


# Samples of a resampling, and their seed.
_DRAWS, _SEED = 2000, 1


def bootstrap(counts: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a mean by resampling; (0, 0) for no counts."""
    if not counts:
        return 0.0, 0.0
    random = Random(_SEED)
    means = sorted(sum(random.choices(counts, k=len(counts))) / len(counts) for _ in range(_DRAWS))
    return means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS)]
