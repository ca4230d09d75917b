"""How many writes the API server is asked for. Pure: time is seconds of a clock that never jumps."""

from __future__ import annotations


class TokenBucket:
    """Tokens that come `rate` a second and are saved up, at most `burst` of them; it begins full."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 where there is one."""
        short = 1.0 - self._at_hand(now)
        # Rounding must not leave a sliver of a token short that no sleep makes up for.
        return short / self._rate if short > 1e-6 else 0.0

    def take(self, now: float) -> None:
        """Take a token, for which `wait` said 0."""
        self._tokens = self._at_hand(now) - 1.0
        self._at = max(now, self._at)

    def _at_hand(self, now: float) -> float:
        return min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
