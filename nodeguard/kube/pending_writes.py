"""What waits to be written, by key. Pure: time is seconds of a clock that never jumps."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class PendingWrite(NamedTuple, Generic[T]):
    """at: when it is due. order: of two due at one time, the smaller goes first. tries: that failed."""

    write: T
    due_at: float
    order: int
    tries: int = 0


class PendingWrites(Generic[T]):
    """The latest of each key counts, and one of a key at a time is under way. First come, first served."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, PendingWrite[T]] = {}
        self._queue: list[tuple[float, int, Hashable]] = []
        self._under_way: dict[Hashable, PendingWrite[T]] = {}
        self._next: dict[Hashable, T] = {}
        self._dropped: set[Hashable] = set()
        self._orders = 0

    def __len__(self) -> int:
        return len(self._entries) + len(self._under_way)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries or key in self._under_way

    def put(self, key: Hashable, what: T, now: float) -> None:
        """Ask for something, in place of what was asked for before. It keeps the place of that; the same
        again changes nothing, and does not hurry what waits for another try.
        """
        if (going := self._under_way.get(key)) is not None:
            self._next.pop(key, None)
            self._dropped.discard(key)
            if going.write != what:
                self._next[key] = what
            return
        had = self._entries.get(key)
        if had is not None and had.write == what:
            return
        self._enter(
            key, what, now if had is None else min(now, had.due_at), had.order if had else self._place()
        )

    def drop(self, key: Hashable) -> None:
        """Ask for nothing any more; what is under way goes on, once."""
        self._entries.pop(key, None)
        if key in self._under_way:
            self._next.pop(key, None)
            self._dropped.add(key)

    def take(self, now: float) -> tuple[Hashable, PendingWrite[T]] | None:
        """The next that is due; it is under way until it is `done` or to be tried `again`."""
        if self.seconds_until_due(now) != 0.0:
            return None
        _, _, key = heapq.heappop(self._queue)
        entry = self._under_way[key] = self._entries.pop(key)
        return key, entry

    def done(self, key: Hashable, now: float) -> None:
        """What was under way is over; what was asked for meanwhile is due."""
        self._under_way.pop(key)
        self._dropped.discard(key)
        if key in self._next:
            self.put(key, self._next.pop(key), now)

    def retry(self, key: Hashable, at: float, now: float, *, failed: bool = True) -> None:
        """What was under way is to be tried again, unless something else was asked for meanwhile.

        failed: whether it counts among its tries.
        """
        entry = self._under_way[key]
        if key in self._next or key in self._dropped:
            self.done(key, now)
        else:
            del self._under_way[key]
            self._enter(key, entry.write, at, entry.order, entry.tries + failed)

    def seconds_until_due(self, now: float) -> float | None:
        """Seconds until something is due, 0 where it is now; None where nothing waits."""
        while self._queue and not self._counts(self._queue[0]):
            heapq.heappop(self._queue)
        return max(0.0, self._queue[0][0] - now) if self._queue else None

    def is_in_flight(self, key: Hashable) -> bool:
        """Whether something of this key is being written."""
        return key in self._under_way

    def _enter(self, key: Hashable, what: T, at: float, order: int, tries: int = 0) -> None:
        self._entries[key] = PendingWrite(what, at, order, tries)
        heapq.heappush(self._queue, (at, order, key))

    def _counts(self, row: tuple[float, int, Hashable]) -> bool:
        at, order, key = row
        entry = self._entries.get(key)
        return entry is not None and (entry.due_at, entry.order) == (at, order)

    def _place(self) -> int:
        self._orders += 1
        return self._orders
