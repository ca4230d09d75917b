from __future__ import annotations

import pytest

from nodeguard.local.backoff import backoff, jittered


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.25), (1, 0.5), (3, 2.0), (8, 60.0), (10**9, 60.0)])
def test_delay_doubles_up_to_the_limit(failures: int, seconds: float) -> None:
    assert backoff(failures, 0.25, 60.0) == seconds


@pytest.mark.parametrize(("fraction", "seconds"), [(0.0, 5.0), (0.5, 7.5), (1.0, 10.0)])
def test_jitter_stays_in_the_upper_half(fraction: float, seconds: float) -> None:
    assert jittered(10.0, fraction) == seconds
