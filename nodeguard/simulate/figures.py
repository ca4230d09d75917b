"""Quantiles of measured values, and confidence intervals at 95%. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, lgamma, log, sqrt

# Of a normal distribution, for 95%; and the probability on each side of the interval.
_Z = 1.959964
_TAIL = 0.025

# Bisections of an interval: enough for every digit that is shown.
_BISECTIONS = 60


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the least value that at least a share of the values does not exceed; None for no values."""
    if not values:
        return None
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """Return Wilson's interval for a share; (0, 1) for no tries."""
    if not tries:
        return 0.0, 1.0
    portion, square = hits / tries, _Z * _Z
    middle = (portion + square / (2 * tries)) / (1 + square / tries)
    width = _Z * sqrt(portion * (1 - portion) / tries + square / (4 * tries * tries)) / (1 + square / tries)
    low = 0.0 if hits == 0 else max(0.0, middle - width)
    return low, 1.0 if hits == tries else min(1.0, middle + width)


def poisson(events: int) -> tuple[float, float]:
    """Return the exact interval for the expected number of independent events."""
    low = _mean_of(events - 1, 1 - _TAIL) if events else 0.0
    return low, _mean_of(events, _TAIL)


def _mean_of(events: int, probability: float) -> float:
    """Return the mean with which at most so many events have this probability."""
    low, high = 0.0, 2.0 * events + 20.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        chances = (exp(count * log(middle) - middle - lgamma(count + 1)) for count in range(events + 1))
        low, high = (middle, high) if sum(chances) > probability else (low, middle)
    return (low + high) / 2
