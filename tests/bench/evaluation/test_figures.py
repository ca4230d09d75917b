from __future__ import annotations

from bench.evaluation.figures import bootstrap


def test_bootstrap_interval() -> None:
    low, high = bootstrap([0.0] * 90 + [1.0] * 10)
    assert 0.03 < low < 0.1 < high < 0.18
    assert bootstrap([0.0] * 90 + [1.0] * 10) == (low, high)
    assert bootstrap([]) == (0.0, 0.0)
