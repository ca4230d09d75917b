"""Sums and means of numbers that are known by their logarithms. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, inf, log


def log_integral_mean(points: Sequence[float], logs: Sequence[float], since: float, until: float) -> float:
    """Return the logarithm of the mean of a function over a time, from its logarithms at some points."""
    ordered = sorted(zip(points, logs, strict=True))
    largest = max(logs)
    area = (ordered[0][0] - since) * exp(ordered[0][1] - largest)
    area += (until - ordered[-1][0]) * exp(ordered[-1][1] - largest)
    for (begin, first), (end, second) in pairwise(ordered):
        area += (end - begin) * (exp(first - largest) + exp(second - largest)) / 2.0
    return largest + log(area / (until - since))


def log_sum(logs: Sequence[float]) -> float:
    """Return the logarithm of a sum, from the logarithms of its terms."""
    largest = max(logs)
    if len(logs) == 1 or largest == -inf:
        return largest
    return largest + log(sum([exp(value - largest) for value in logs]))


def log_mean_exp(logs: Sequence[float]) -> float:
    """Return the logarithm of a mean, from the logarithms of its terms."""
    return log_sum(logs) - log(len(logs))
