from __future__ import annotations

import pytest

from nodeguard.simulate.figures import poisson, quantile, wilson


def test_quantile() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert quantile(values, 0.5) == 3.0
    assert quantile(values, 0.95) == 5.0
    assert quantile([], 0.5) is None


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [(240, 240, 0.984, 1.0), (0, 20, 0.0, 0.161), (5, 10, 0.237, 0.763), (0, 0, 0.0, 1.0)],
)
def test_wilson_interval(hits: int, tries: int, low: float, high: float) -> None:
    assert wilson(hits, tries) == pytest.approx((low, high), abs=1e-3)


@pytest.mark.parametrize(
    ("events", "low", "high"), [(0, 0.0, 3.689), (1, 0.025, 5.572), (20, 12.217, 30.888)]
)
def test_poisson_interval(events: int, low: float, high: float) -> None:
    assert poisson(events) == pytest.approx((low, high), abs=1e-3)
