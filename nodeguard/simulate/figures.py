"""Quantiles of measured values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the least value that at least a share of the values does not exceed; None for no values."""
    if not values:
        return None
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]
