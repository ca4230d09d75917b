"""Means and confidence intervals at 95%. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from random import Random

# Of a normal distribution, for 95%.
_Z = 1.959964


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """Return Wilson's interval for a share; (0, 1) for no tries."""
    if not tries:
        return 0.0, 1.0
    share, square = hits / tries, _Z * _Z
    middle = (share + square / (2 * tries)) / (1 + square / tries)
    width = _Z * sqrt(share * (1 - share) / tries + square / (4 * tries * tries)) / (1 + square / tries)
    low = 0.0 if hits == 0 else max(0.0, middle - width)
    return low, 1.0 if hits == tries else min(1.0, middle + width)


def bootstrap(counts: Sequence[float], seed: int = 1, draws: int = 2000) -> tuple[float, float]:
    """Return the interval of a mean by resampling; (0, 0) for no counts."""
    if not counts:
        return 0.0, 0.0
    random = Random(seed)
    means = sorted(sum(random.choices(counts, k=len(counts))) / len(counts) for _ in range(draws))
    return means[int(0.025 * draws)], means[min(draws - 1, int(0.975 * draws))]


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None for no values."""
    return sum(values) / len(values) if values else None
