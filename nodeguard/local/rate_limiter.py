"""Rate limiter: a token bucket for requests, writes, Events and log lines. Pure: callers pass the time."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

# Rounding must not leave a bucket short by a part of a token that no sleep makes up for.
_TOLERANCE = 1e-6


class Rate(Struct, frozen=True):
    """A rate limit: `burst` tokens at once, `per_second` tokens a second on average."""

    burst: float
    per_second: float

    def bucket(self) -> TokenBucket:
        """Return a full bucket with this rate."""
        return TokenBucket(self.per_second, self.burst)


class TokenBucket:
    """Tokens that are added at `rate` a second, at most `burst` of them. A new bucket is full.

    now: seconds of a monotonic clock. A clock that goes back adds nothing.
    """

    __slots__ = ("_burst", "_level", "_rate", "_updated")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = float(burst)
        self._updated = float("-inf")

    def wait(self, now: float, cost: float = 1.0) -> float:
        """Return the seconds until the bucket has `cost` tokens, 0 if it has them now. A cost above the burst
        counts as the burst.
        """
        missing = min(cost, self._burst) - self._available(now)
        return missing / self._rate if missing > _TOLERANCE else 0.0

    def take(self, now: float, cost: float = 1.0) -> float:
        """Take `cost` tokens. Returns 0, or the seconds to wait if there are too few: then none are taken."""
        wait = self.wait(now, cost)
        if not wait:
            self._level = self._available(now) - min(cost, self._burst)
            self._updated = max(now, self._updated)
        return wait

    def refund(self) -> None:
        """Return one unused token to the bucket."""
        self._level += 1.0

    def _available(self, now: float) -> float:
        return min(self._burst, self._level + max(0.0, now - self._updated) * self._rate)


class KeyedRateLimiter:
    """One bucket for each key, for the `most` keys that were used last. A forgotten key has a full bucket."""

    def __init__(self, rate: Rate, most: int) -> None:
        self._rate, self._most = rate, most
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait(self, key: str, now: float) -> float:
        """Return the seconds until a key has a token: see TokenBucket.wait."""
        bucket = self._buckets.get(key)
        return bucket.wait(now) if bucket is not None else 0.0

    def take(self, key: str, now: float, cost: float = 1.0) -> float:
        """Take tokens of a key: see TokenBucket.take."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = self._rate.bucket()
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket.take(now, cost)

    def refund(self, key: str) -> None:
        """Return one unused token of a key: see TokenBucket.refund."""
        if (bucket := self._buckets.get(key)) is not None:
            bucket.refund()
