"""Writes that wait for their turn, by key. Pure: time is seconds of a monotonic clock."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class PendingWrite(NamedTuple, Generic[T]):
    """due_at: time from which it may be sent. order: the smaller goes first. tries: that failed so far."""

    write: T
    due_at: float
    order: int
    tries: int = 0


class PendingWrites(Generic[T]):
    """Holds the latest write for each key, first in, first out. One write for each key is in flight."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, PendingWrite[T]] = {}
        self._queue: list[tuple[float, int, Hashable]] = []
        self._in_flight: dict[Hashable, PendingWrite[T]] = {}
        self._next: dict[Hashable, T] = {}
        self._dropped: set[Hashable] = set()
        self._last_order = 0

    def __len__(self) -> int:
        return len(self._pending) + len(self._in_flight)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pending or key in self._in_flight

    def put(self, key: Hashable, write: T, now: float) -> None:
        """Add a write, which replaces the one that waits for this key and keeps its place in the queue.

        An equal write changes nothing: it does not hurry one that waits for a retry.
        """
        if (in_flight := self._in_flight.get(key)) is not None:
            self._next.pop(key, None)
            self._dropped.discard(key)
            if in_flight.write != write:
                self._next[key] = write
            return
        before = self._pending.get(key)
        if before is not None and before.write == write:
            return
        if before is None:
            self._enter(key, write, now, self._next_order())
        else:
            self._enter(key, write, min(now, before.due_at), before.order)

    def drop(self, key: Hashable) -> None:
        """Remove the write of a key. One that is in flight ends, and is not retried."""
        self._pending.pop(key, None)
        if key in self._in_flight:
            self._next.pop(key, None)
            self._dropped.add(key)

    def take(self, now: float) -> tuple[Hashable, PendingWrite[T]] | None:
        """Return the next write that is due; it is in flight until `done` or `retry`. None for none."""
        if self.seconds_until_due(now) != 0.0:
            return None
        _, _, key = heapq.heappop(self._queue)
        pending = self._in_flight[key] = self._pending.pop(key)
        return key, pending

    def done(self, key: Hashable, now: float) -> None:
        """End the write in flight. One that was added meanwhile is due now."""
        self._in_flight.pop(key)
        self._dropped.discard(key)
        if key in self._next:
            self.put(key, self._next.pop(key), now)

    def retry(self, key: Hashable, at: float, now: float, *, failed: bool = True) -> None:
        """Schedule the write in flight again, unless another was added or it was dropped meanwhile.

        failed: whether it counts among its tries.
        """
        pending = self._in_flight[key]
        if key in self._next or key in self._dropped:
            self.done(key, now)
        else:
            del self._in_flight[key]
            self._enter(key, pending.write, at, pending.order, pending.tries + failed)

    def seconds_until_due(self, now: float) -> float | None:
        """Return the seconds until a write is due, 0 if one is due now; None if none waits."""
        while self._queue and not self._is_current(self._queue[0]):
            heapq.heappop(self._queue)
        return max(0.0, self._queue[0][0] - now) if self._queue else None

    def is_in_flight(self, key: Hashable) -> bool:
        """Return whether a write of this key is being sent."""
        return key in self._in_flight

    def _enter(self, key: Hashable, write: T, due_at: float, order: int, tries: int = 0) -> None:
        self._pending[key] = PendingWrite(write, due_at, order, tries)
        heapq.heappush(self._queue, (due_at, order, key))

    def _is_current(self, entry: tuple[float, int, Hashable]) -> bool:
        due_at, order, key = entry
        pending = self._pending.get(key)
        return pending is not None and (pending.due_at, pending.order) == (due_at, order)

    def _next_order(self) -> int:
        self._last_order += 1
        return self._last_order
