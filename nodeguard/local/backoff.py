"""Delay before a retry: exponential backoff with jitter. Pure: the caller draws the random number."""

from __future__ import annotations


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the seconds before the next try: `first`, doubled for each failure, at most `longest`."""
    return min(longest, first * 2.0 ** min(failures, 30))


def jittered(seconds: float, fraction: float) -> float:
    """Return a delay from the upper half of `seconds`, so that clients spread and none retries at once.

    fraction: from 0 to 1, drawn at random.
    """
    return seconds * (0.5 + 0.5 * fraction)
