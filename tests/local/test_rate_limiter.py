from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.local.rate_limiter import TokenBucket


@given(st.lists(st.floats(0.0, 3.0)), st.sampled_from([1.0, 20.0, 50.0]), st.integers(1, 50))
def test_no_more_than_the_burst_and_the_rate(pauses: list[float], rate: float, burst: int) -> None:
    bucket, now, taken = TokenBucket(rate, burst), 100.0, 0
    for pause in pauses:
        now += pause
        while bucket.wait(now) == 0.0:
            bucket.take(now)
            taken += 1
            assert taken <= burst + rate * (now - 100.0) + 1e-3
    now += bucket.wait(now)
    assert bucket.wait(now) == 0.0


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = TokenBucket(50.0, 1)
    bucket.take(5.0)
    assert bucket.wait(5.0) == bucket.wait(4.0) > 0.0
