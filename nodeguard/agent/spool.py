"""Transitions that nobody has heard yet: kept on disk where there is one, in memory where it fails, bounded.

Whoever blocks on a disk here is the sender's own thread, never the loop that judges.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

MOST_BYTES = 1024 * 1024
MOST_ENTRIES = 64


class CorruptError(Exception):
    """An entry that is not what was written. The store has set it aside; says where."""


class Store(Protocol):
    """Where entries lie, by number. Each method raises OSError where the disk does not do it."""

    def list(self) -> dict[int, int]:
        """Size in bytes of each whole entry by its number."""

    def write(self, number: int, data: bytes) -> None:
        """Keep an entry, whole or not at all, before this returns."""

    def read(self, number: int) -> bytes:
        """An entry. Raises CorruptError."""

    def remove(self, number: int) -> None:
        """Forget an entry; one that is not there is forgotten already."""

    def set_aside(self, number: int) -> str:
        """Keep an entry for a person to look at, out of the way. Returns where."""


class _Entry(Struct):
    size: int
    data: bytes | None = None


class Spool:
    """A queue of bytes, oldest first.

    dropped: entries that were let go unheard, to keep the bound. notes: what went wrong and has not been told
    yet; take_notes empties it. problem: why the disk keeps nothing at the moment, empty where it does.
    """

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES, most_entries: int = MOST_ENTRIES) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._entries: dict[int, _Entry] = {}
        self._gone: set[int] = set()
        self._notes: list[str] = []
        self.dropped = 0
        self.problem = ""
        self._listed = False
        self._next = 1
        self.settle()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(entry.size for entry in self._entries.values())

    def put(self, data: bytes) -> None:
        """Add an entry. One that is larger than the bound is dropped itself."""
        self._entries[self._next] = _Entry(len(data), data)
        self._next += 1
        self._bound()
        self.settle()

    def first(self) -> tuple[int, bytes] | None:
        """The oldest entry with its number. What cannot be read any more is set aside and told of."""
        for number, entry in list(self._entries.items()):
            if entry.data is not None:
                return number, entry.data
            try:
                return number, self._store.read(number)
            except CorruptError as error:
                self._notes.append(f"a transition nobody had heard is lost: {error}")
            except OSError as error:
                self._notes.append(f"a transition nobody had heard cannot be read: {_reason(error)}")
            del self._entries[number]
            self.dropped += 1
        return None

    def done(self, number: int) -> None:
        """Forget an entry that was heard."""
        if self._entries.pop(number, None) is not None:
            self._remove(number)

    def refuse(self, number: int, why: str) -> None:
        """Take an entry out that no receiver will ever accept, so that those behind it are heard."""
        entry = self._entries.pop(number, None)
        if entry is None:
            return
        self.dropped += 1
        where = ""
        try:
            where = self._store.set_aside(number) if entry.data is None else ""
        except OSError as error:
            self._failed(error)
        self._notes.append(f"a transition was refused, {why}" + (f"; it is kept in {where}" if where else ""))

    def settle(self) -> None:
        """Bring to the disk what it has not taken or let go of yet."""
        try:
            self._list()
            for number in sorted(self._gone):
                self._store.remove(number)
                self._gone.discard(number)
            for number, entry in self._entries.items():
                if entry.data is not None:
                    self._store.write(number, entry.data)
                    entry.data = None
        except OSError as error:
            self._failed(error)
        else:
            self.problem = ""

    def take_notes(self) -> list[str]:
        """What went wrong since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def _list(self) -> None:
        """Find what an earlier run left, once, and put what this one has gathered meanwhile behind it."""
        if self._listed:
            return
        found = {number: _Entry(size) for number, size in sorted(self._store.list().items())}
        self._listed = True
        self._next = max(found, default=0) + 1
        for entry in self._entries.values():
            found[self._next] = entry
            self._next += 1
        self._entries = found
        self._bound()

    def _bound(self) -> None:
        while len(self._entries) > self._most_entries or (self._entries and self.size > self._most_bytes):
            number = next(iter(self._entries))
            del self._entries[number]
            self._remove(number)
            self.dropped += 1

    def _remove(self, number: int) -> None:
        try:
            self._store.remove(number)
        except OSError as error:
            self._gone.add(number)
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        problem = f"{_reason(error)}: transitions are kept in memory until the disk takes them"
        if problem != self.problem:
            self._notes.append(problem)
        self.problem = problem


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
