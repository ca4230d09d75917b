from __future__ import annotations

from nodeguard.simulate.figures import quantile


def test_quantile() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert quantile(values, 0.5) == 3.0
    assert quantile(values, 0.95) == 5.0
    assert quantile([], 0.5) is None
