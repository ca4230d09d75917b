from __future__ import annotations

import pytest

from nodeguard.simulate.figures import bootstrap, mean, quantile, wilson


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [(240, 240, 0.984, 1.0), (0, 20, 0.0, 0.161), (5, 10, 0.237, 0.763), (0, 0, 0.0, 1.0)],
)
def test_an_interval_is_wilsons(hits: int, tries: int, low: float, high: float) -> None:
    assert wilson(hits, tries) == pytest.approx((low, high), abs=1e-3)


def test_a_mean_lies_where_drawing_anew_has_it() -> None:
    low, high = bootstrap([0.0] * 90 + [1.0] * 10)
    assert 0.03 < low < 0.1 < high < 0.18
    assert bootstrap([0.0] * 90 + [1.0] * 10) == (low, high)
    assert bootstrap([]) == (0.0, 0.0)


def test_quantiles_and_means_are_of_something() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert quantile(values, 0.5) == 3.0
    assert quantile(values, 0.95) == 5.0
    assert quantile([], 0.5) is None
    assert mean(values) == 3.0
    assert mean([]) is None
