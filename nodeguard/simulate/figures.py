"""Arithmetic of figures: intervals, quantiles. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from random import Random

# Of a normal distribution, for 95 in 100.
_Z = 1.959964


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """Where a share surely lies, at 95%, of which so many tries hit: Wilson's interval. (0, 1) of none."""
    if not tries:
        return 0.0, 1.0
    share, square = hits / tries, _Z * _Z
    middle = (share + square / (2 * tries)) / (1 + square / tries)
    width = _Z * sqrt(share * (1 - share) / tries + square / (4 * tries * tries)) / (1 + square / tries)
    low = 0.0 if hits == 0 else max(0.0, middle - width)
    return low, 1.0 if hits == tries else min(1.0, middle + width)


def bootstrap(counts: Sequence[float], seed: int = 1, draws: int = 2000) -> tuple[float, float]:
    """Where a mean surely lies, at 95%, by drawing anew from what was counted. (0, 0) of nothing."""
    if not counts:
        return 0.0, 0.0
    chance = Random(seed)
    means = sorted(sum(chance.choices(counts, k=len(counts))) / len(counts) for _ in range(draws))
    return means[int(0.025 * draws)], means[min(draws - 1, int(0.975 * draws))]


def quantile(values: Sequence[float], share: float) -> float | None:
    """The least of some values that at least such a share of them does not exceed; None of none."""
    if not values:
        return None
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


def mean(values: Sequence[float]) -> float | None:
    """The mean of some values; None of none."""
    return sum(values) / len(values) if values else None
