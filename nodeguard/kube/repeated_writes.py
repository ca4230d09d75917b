"""Limit on writes that another client undoes each time: of the same content of an object, again and again."""

from __future__ import annotations

import time

from nodeguard.kube.errors import ApiError
from nodeguard.local.rate_limiter import KeyedRateLimiter, Rate

# Writes of the same content of an object, and objects for which these are counted.
_REPEATS = Rate(burst=5.0, per_second=1.0 / 60.0)
_MAX_REPEATED = 1_000


class RepeatedWrites:
    """Counts the writes that repeat the latest one of their object. Objects are named by a key."""

    def __init__(self) -> None:
        self._written: dict[str, object] = {}
        self._limiter = KeyedRateLimiter(_REPEATS, _MAX_REPEATED)

    def check(self, key: str, content: object, undone: str) -> None:
        """Verify that a write may be sent. undone: what another client does, for the message. Raises ApiError
        for content that was written last, after five such writes: then one a minute is sent.
        """
        if self._is_repeat(key, content) and self._limiter.wait(key, time.monotonic()):
            message = (
                f"{undone} each time: nodeguard writes it once a minute; the audit log of the API server"
            )
            raise ApiError(200, "Removed", f"{message} names that client")

    def record(self, key: str, content: object) -> None:
        """Record a write that succeeded."""
        if self._is_repeat(key, content):
            self._limiter.take(key, time.monotonic())
        self._written[key] = content

    def forget(self, key: str) -> None:
        """Forget the latest content of an object, but not how often it was repeated."""
        self._written.pop(key, None)

    def _is_repeat(self, key: str, content: object) -> bool:
        return key in self._written and self._written[key] == content
