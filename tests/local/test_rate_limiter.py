from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.local.rate_limiter import KeyedRateLimiter, Rate, TokenBucket

RATE = Rate(10.0, 2.0)


@given(st.lists(st.floats(0.0, 3.0)), st.sampled_from([1.0, 20.0, 50.0]), st.integers(1, 50))
def test_takes_stay_within_burst_and_rate(pauses: list[float], rate: float, burst: int) -> None:
    bucket, now, taken = TokenBucket(rate, burst), 100.0, 0
    for pause in pauses:
        now += pause
        while bucket.wait(now) == 0.0:
            bucket.take(now)
            taken += 1
            assert taken <= burst + rate * (now - 100.0) + 1e-3
    now += bucket.wait(now)
    assert bucket.wait(now) == 0.0


def test_a_stopped_clock_adds_no_tokens() -> None:
    bucket = TokenBucket(50.0, 1)
    bucket.take(5.0)
    assert bucket.wait(5.0) == bucket.wait(4.0) > 0.0


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(1.0, 4.0)), max_size=200))
def test_tokens_never_exceed_the_rate(asks: list[tuple[float, float]]) -> None:
    bucket, now, given_out = RATE.bucket(), 0.0, 0.0
    for pause, price in asks:
        now += pause
        wait = bucket.take(now, price)
        given_out += 0.0 if wait else price
        assert wait <= price / RATE.per_second
        assert given_out <= RATE.burst + now * RATE.per_second + 1e-6


def test_a_take_succeeds_after_the_returned_wait() -> None:
    bucket = RATE.bucket()
    assert bucket.take(0.0, 10.0) == 0.0
    wait = bucket.take(0.0, 3.0)
    assert wait == 1.5
    assert bucket.take(wait, 3.0) == 0.0


def test_only_the_latest_keys_are_remembered() -> None:
    buckets = KeyedRateLimiter(Rate(1.0, 0.001), 3)
    assert buckets.take("kept", 0.0) == 0.0
    for number in range(100):
        buckets.take(str(number), 0.0)
        assert buckets.take("kept", 0.0) > 0.0
    assert len(buckets._buckets) == 3
