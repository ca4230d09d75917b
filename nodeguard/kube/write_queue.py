"""Writes to the API: so many a second, so many at a time, each again until it is done or superseded."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import msgspec

from nodeguard.kube.error_log import Log, WriteErrorLog
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import FencedClient, FencedError, NotPermittedError, affects_all_requests
from nodeguard.kube.pending_writes import PendingWrite, PendingWrites
from nodeguard.local.rate_limiter import TokenBucket

# Seconds after a write that failed: at first, then twice as long each time, at most; also
# where the server takes none at all.
_FIRST = 0.25
_LONGEST = 60.0
_LONGEST_OF_ALL = 5.0

# A write that others got in the way of so many times waits its turn like one that failed.
_CONFLICTS = 5

# Seconds between two looks at whether a write may be made.
_LOOK = 0.25

T = TypeVar("T")


class ConflictError(Exception):
    """The object has changed since it was read: to be done again at once."""


class _Job(NamedTuple):
    what: Any
    send: Callable[[Any], Awaitable[None]]


class WriteQueue:
    """What waits to be written, and who writes it.

    permit: whether anything may be written. tell: takes sentences for the log. after: a lane that goes first;
    nothing is sent while something waits there that may be sent. width: how many at a time;
    fewer after the server could not take them, and more again with each that it takes.
    """

    def __init__(
        self,
        client: FencedClient,
        bucket: TokenBucket,
        log: Log,
        *,
        after: WriteQueue | None = None,
        max_in_flight: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._permit = client
        self._bucket = bucket
        self._failures = WriteErrorLog(log)
        self._after = after
        self._width = self._allowed = max_in_flight
        self._clock = clock
        self._waiting: PendingWrites[_Job] = PendingWrites()
        self._flying = 0
        self._rest_until = float("-inf")
        self._rests = 0
        self._woken = asyncio.Event()
        self._wakes = [self._woken]
        if after is not None:
            after.add_wake_event(self._woken)

    def put(self, key: Hashable, what: T, send: Callable[[T], Awaitable[None]]) -> None:
        """Have something written, in place of what is waiting under this key. The same again changes nothing.

        send: writes it. Raises ApiError, where it is to be asked again; ConflictError, where at once;
        NotPermittedError; and FencedError.
        """
        self._waiting.put(key, _Job(what, send), self._clock())
        self._wake()

    def drop(self, key: Hashable) -> None:
        """Have nothing written any more under a key; what is under way goes on, once."""
        self._waiting.drop(key)
        if not self._waiting.is_in_flight(key):
            self._failures.finished(key)

    def is_in_flight(self, key: Hashable) -> bool:
        """Whether something is being written under a key."""
        return self._waiting.is_in_flight(key)

    def add_wake_event(self, event: asyncio.Event) -> None:
        """Set an event, too, whenever there may be something new to do."""
        self._wakes.append(event)

    @property
    def pending(self) -> int:
        """How many writes are not done yet."""
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way, or could be at once."""
        return self._flying > 0 or (
            self._waiting.seconds_until_due(self._clock()) == 0.0 and self._permit.can_write()
        )

    async def run(self) -> None:
        """Write until somebody with a later lease has written, or until cancelled."""
        async with asyncio.TaskGroup() as group:
            while not self._permit.is_fenced:
                self._woken.clear()
                if (pause := self._pause()) == 0.0:
                    taken = self._waiting.take(self._clock())
                    assert taken is not None
                    self._bucket.take(self._clock())
                    self._flying += 1
                    group.create_task(self._send(*taken))
                    # Else a thousand that wait would all be begun before the first of them gets anywhere.
                    await asyncio.sleep(0)
                else:
                    await self._wait(pause)

    def _pause(self) -> float | None:
        """Seconds until something may be sent, unless something happens before; None for until then."""
        now = self._clock()
        due = self._waiting.seconds_until_due(now)
        if due is None or self._flying >= self._allowed:
            return None
        if not self._permit.can_write() or (self._after is not None and self._after.is_busy):
            return max(due, _LOOK)
        return max(due, self._bucket.wait(now), self._rest_until - now)

    async def _wait(self, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _send(self, key: Hashable, entry: PendingWrite[_Job]) -> None:
        try:
            await entry.write.send(entry.write.what)
        except ApiError as error:
            self._failed(key, entry, error)
        except msgspec.MsgspecError as error:
            self._failed(
                key, entry, ApiError(200, "Unreadable", f"the Kubernetes API's answer is none: {error}")
            )
        except ConflictError:
            now = self._clock()
            wait = 0.0 if entry.tries < _CONFLICTS else _backoff(entry.tries - _CONFLICTS, _LONGEST)
            self._waiting.retry(key, now + wait, now)
        except NotPermittedError:
            now = self._clock()
            self._waiting.retry(key, now, now, failed=False)
        except FencedError:
            self._waiting.done(key, self._clock())
        else:
            self._waiting.done(key, self._clock())
            self._rests = 0
            self._allowed = min(self._width, self._allowed + 1)
            self._failures.finished(key)
        finally:
            self._flying -= 1
            self._wake()

    def _failed(self, key: Hashable, entry: PendingWrite[_Job], error: ApiError) -> None:
        now = self._clock()
        self._failures.failed(key, error)
        of_all = affects_all_requests(error)
        if of_all:
            wait = max(_backoff(self._rests, _LONGEST_OF_ALL), min(error.retry_after or 0.0, _LONGEST))
            # Those that were under way together fail together, which is one failure.
            if now >= self._rest_until:
                self._rests += 1
                self._allowed = max(1, self._allowed // 2)
            self._rest_until = max(self._rest_until, now + wait)
        # One write alone that is never answered must not be in the way of all others for ever.
        own = 0.0 if of_all and error.reason != "Timeout" else _backoff(entry.tries, _LONGEST)
        self._waiting.retry(key, now + own, now)
        if key not in self._waiting:
            self._failures.finished(key)

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()


def _backoff(tries: int, longest: float) -> float:
    """Seconds, from the upper half of what is allowed: so that two writers do not meet again and again."""
    return min(longest, _FIRST * 2.0 ** min(tries, 30)) * (0.5 + 0.5 * random.random())  # noqa: S311 - jitter
