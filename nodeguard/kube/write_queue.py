"""Queue of writes to the API: limited in rate and number, retried until done or replaced by newer ones."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import msgspec

from nodeguard.kube.errors import ApiError, affects_all_requests
from nodeguard.kube.fenced_client import FencedClient, FencedError, NotPermittedError
from nodeguard.kube.pending_writes import PendingWrite, PendingWrites
from nodeguard.local.backoff import backoff, jittered
from nodeguard.local.rate_limiter import TokenBucket

logger = logging.getLogger(__name__)

# Seconds before a retry: of the first one, at most, and at most where the server fails all writes.
_FIRST_DELAY = 0.25
MAX_DELAY = 60.0
_MAX_SERVER_DELAY = 5.0

# The status of a server that limits the rate of all writes.
_TOO_MANY_REQUESTS = 429

# A write with so many conflicts in a row is retried with a delay, as one that failed.
_MAX_CONFLICTS = 5

# Seconds between two checks of whether a write is permitted.
_POLL_SECONDS = 0.25

T = TypeVar("T")


class ConflictError(Exception):
    """The object has changed since it was read: retry the write at once."""


class _Job(NamedTuple):
    value: Any
    send: Callable[[Any], Awaitable[None]]


class WriteQueue:
    """Holds writes until they may be sent, and sends them.

    client: returns whether writes are permitted. bucket: limits the rate. after: a queue of higher priority;
    nothing is sent while that one has a write that it may send. max_in_flight: concurrent writes; the limit
    is halved when the server fails writes, and grows by one with each success.
    """

    def __init__(
        self,
        client: FencedClient,
        bucket: TokenBucket,
        *,
        after: WriteQueue | None = None,
        max_in_flight: int = 20,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._failing: set[Hashable] = set()  # keys of writes that failed last time
        self._failed_by_server: set[Hashable] = set()  # since the last success
        self._after = after
        self._max_in_flight = self._in_flight_limit = max_in_flight
        self._writes: PendingWrites[_Job] = PendingWrites()
        self._in_flight = 0
        self._server_retry_at = float("-inf")
        self._server_failures = 0
        self._wake_event = asyncio.Event()
        self._wake_events = [self._wake_event]
        if after is not None:
            after.add_wake_event(self._wake_event)

    def put(self, key: Hashable, value: T, send: Callable[[T], Awaitable[None]]) -> None:
        """Add a write, which replaces the one that waits under this key. An equal write changes nothing.

        send: sends it. It may raise ApiError, to be retried after a delay; ConflictError, to be retried at
        once; NotPermittedError; and FencedError.
        """
        self._writes.put(key, _Job(value, send), time.monotonic())
        self._wake()

    def drop(self, key: Hashable) -> None:
        """Remove the write of a key. One that is in flight ends, and is not retried."""
        self._writes.drop(key)
        if not self._writes.is_in_flight(key):
            self._finished(key)

    def is_in_flight(self, key: Hashable) -> bool:
        """Return whether a write of this key is being sent."""
        return self._writes.is_in_flight(key)

    def add_wake_event(self, event: asyncio.Event) -> None:
        """Register an event that is set whenever the queue changes."""
        self._wake_events.append(event)

    @property
    def pending(self) -> int:
        """Number of writes that are not done yet."""
        return len(self._writes)

    @property
    def is_busy(self) -> bool:
        """Whether a write is in flight, or may be sent now."""
        is_due = self._writes.seconds_until_due(time.monotonic()) == 0.0
        return self._in_flight > 0 or (is_due and self._client.can_write())

    async def run(self) -> None:
        """Send writes until a later leader has written, or until cancelled."""
        async with asyncio.TaskGroup() as group:
            while not self._client.is_fenced:
                self._wake_event.clear()
                if (pause := self._pause()) == 0.0:
                    taken = self._writes.take(time.monotonic())
                    assert taken is not None
                    self._bucket.take(time.monotonic())
                    self._in_flight += 1
                    group.create_task(self._send(*taken))
                    # Otherwise a thousand writes would begin before the first one makes progress.
                    await asyncio.sleep(0)
                else:
                    await self._wait(pause)

    def _pause(self) -> float | None:
        """Return the seconds until the next write, 0 for now; None until the queue changes."""
        now = time.monotonic()
        due = self._writes.seconds_until_due(now)
        if due is None or self._in_flight >= self._in_flight_limit:
            return None
        if not self._client.can_write() or (self._after is not None and self._after.is_busy):
            return max(due, _POLL_SECONDS)
        return max(due, self._bucket.wait(now), self._server_retry_at - now)

    async def _wait(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._wake_event.wait()
        except TimeoutError:
            pass

    async def _send(self, key: Hashable, pending: PendingWrite[_Job]) -> None:
        try:
            await pending.write.send(pending.write.value)
        except ApiError as error:
            self._failed(key, pending, error)
        except msgspec.MsgspecError as error:
            message = f"the Kubernetes API returned an invalid object: {error}"
            self._failed(key, pending, ApiError(200, "Unreadable", message))
        except ConflictError:
            now = time.monotonic()
            conflicts = pending.tries - _MAX_CONFLICTS
            wait = 0.0 if conflicts < 0 else _delay(conflicts, MAX_DELAY)
            self._writes.retry(key, now + wait, now)
        except NotPermittedError:
            now = time.monotonic()
            self._writes.retry(key, now, now, failed=False)
        except FencedError:
            self._writes.done(key, time.monotonic())
        else:
            self._writes.done(key, time.monotonic())
            self._server_failures = 0
            self._failed_by_server.clear()
            self._in_flight_limit = min(self._max_in_flight, self._in_flight_limit + 1)
            self._finished(key)
        finally:
            self._in_flight -= 1
            self._wake()

    def _failed(self, key: Hashable, pending: PendingWrite[_Job], error: ApiError) -> None:
        now = time.monotonic()
        self._failing.add(key)
        logger.warning("write failed", extra={"reason": error.reason, "error": error.message})
        longest = MAX_DELAY
        if affects_all_requests(error):
            self._failed_by_server.add(key)
            # A server that fails one write, such as that of a Node with a faulty webhook, may take others.
            if len(self._failed_by_server) > 1 or error.status == _TOO_MANY_REQUESTS:
                self._wait_for_server(error, now)
            # A single write that never gets a response must not block all others for ever.
            longest = MAX_DELAY if error.reason == "Timeout" else _MAX_SERVER_DELAY
        self._writes.retry(key, now + max(_delay(pending.tries, longest), _asked_wait(error)), now)
        if key not in self._writes:
            self._finished(key)

    def _wait_for_server(self, error: ApiError, now: float) -> None:
        """Delay all writes: the server fails them."""
        wait = max(_delay(self._server_failures, _MAX_SERVER_DELAY), _asked_wait(error))
        # Writes that were in flight together fail together, which is one failure.
        if now >= self._server_retry_at:
            self._server_failures += 1
            self._in_flight_limit = max(1, self._in_flight_limit // 2)
        self._server_retry_at = max(self._server_retry_at, now + wait)

    def _finished(self, key: Hashable) -> None:
        """Log the recovery when the last write that failed is done or dropped."""
        if key in self._failing:
            self._failing.discard(key)
            if not self._failing:
                logger.info("all writes succeed again")

    def _wake(self) -> None:
        for event in self._wake_events:
            event.set()


def _asked_wait(error: ApiError) -> float:
    """Return the seconds that the server asks to wait before a retry, at most MAX_DELAY."""
    return min(error.retry_after or 0.0, MAX_DELAY)


def _delay(failures: int, longest: float) -> float:
    """Return the seconds before a retry, with jitter, so that two writers do not conflict again and again."""
    return jittered(backoff(failures, _FIRST_DELAY, longest), random.random())  # noqa: S311 - jitter
