"""Means, and their confidence intervals at 95%. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


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
