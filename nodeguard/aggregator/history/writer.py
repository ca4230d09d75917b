"""The thread that writes a history: a disk may be full, or hang, and nobody waits for it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from nodeguard.aggregator.history.file import DamagedFileError, ForeignFileError, HistoryFileError
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.state.history_events import HistoryEvent

# Steps that wait to be written at most, of which the oldest are lost, and that are written at a time.
_MOST = 4000
_BATCH = 500

# Seconds for which steps are gathered; until the next try after one that failed; between two looks for what
# is too old or too much; after which a write hangs; and for the last at the end.
_GATHER = 1.0
_AGAIN = 30.0
_TRIM = 600.0
_HANGS = 30.0
_LAST = 2.0

_MIB = 1 << 20

# What a file is called that was damaged, beside its own name.
DAMAGED_SUFFIX = ".damaged"


class HistoryLimits(Struct, frozen=True):
    """How much is kept. days: of a history; mib: MiB that its file may hold."""

    days: float
    mib: float


class HistoryWriter:
    """Takes steps from any thread and never waits; its thread begins with the first.

    added: transitions written since the start. lost: steps that never will be. size: bytes of the file.
    wrong: why nothing is written, in a sentence with the remedy; empty while all is well.
    """

    def __init__(
        self,
        path: str,
        bounds: HistoryLimits,
        wall: Callable[[], float] = time.time,
        again: float = _AGAIN,
        gather: float = _GATHER,
    ) -> None:
        self.path = path
        self.added = self.lost = self.size = 0
        self.error = ""
        self._bounds = bounds
        self._wall, self._again, self._gather = wall, again, gather
        self._steps: deque[HistoryEvent] = deque()
        self._said: deque[str] = deque(maxlen=16)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = self._refused = False
        self._busy: float | None = None
        self._store: HistoryStore | None = None
        self._damaged = ""
        self._before = 0
        self._trimmed = float("-inf")
        self._fits = True

    def put(self, step: HistoryEvent) -> None:
        """Have a step written."""
        with self._changed:
            if self._refused or self._closed:
                self.lost += 1
                return
            if len(self._steps) >= _MOST:
                self._steps.popleft()
                self.lost += 1
            self._steps.append(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="history", daemon=True)
                self._thread.start()
            self._changed.notify()

    def take_messages(self) -> list[str]:
        """Sentences for the log that nobody was told yet."""
        busy = self._busy
        if busy is not None and time.monotonic() - busy > _HANGS:
            self._tell(
                f"{self.path}: no answer of its disk for {_HANGS:g} s: see to it, or name another --history"
            )
        said = []
        while self._said:
            said.append(self._said.popleft())
        return said

    def close(self, within: float = _LAST) -> None:
        """Write what waits, for a moment at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within)

    def _run(self) -> None:
        while not self._refused and (steps := self._next()):
            if self._write(steps):
                continue
            self._put_back(steps)
            if self._closed:
                self.lost += len(self._steps)
                break
            with self._changed:
                self._changed.wait_for(lambda: self._closed, self._again)
        if self._store is not None:
            self._store.close()

    def _put_back(self, steps: list[HistoryEvent]) -> None:
        """Steps that were not written come before all others again; where room is short, the latest."""
        with self._changed:
            room = 0 if self._refused else _MOST - len(self._steps)
            kept = steps[max(0, len(steps) - room) :] if room > 0 else []
            self.lost += len(steps) - len(kept)
            self._steps.extendleft(reversed(kept))

    def _next(self) -> list[HistoryEvent]:
        """What is to be written next; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._steps or self._closed)
            self._changed.wait_for(lambda: len(self._steps) >= _BATCH or self._closed, self._gather)
            steps = list(islice(self._steps, _BATCH))
            for _ in steps:
                self._steps.popleft()
            return steps

    def _write(self, steps: list[HistoryEvent]) -> bool:
        """Write some steps. Returns whether that was done."""
        self._busy = time.monotonic()
        try:
            store = self._opened()
            store.add(steps, self._wall())
            self.added = self._before + store.added
            if time.monotonic() - self._trimmed >= _TRIM:
                self._trim(store)
            self.size = store.size()
        except (HistoryFileError, OSError, sqlite3.Error) as error:
            self._fail(error)
            return False
        except Exception as error:  # noqa: BLE001 - what one node says must not end the history of all
            self.lost += len(steps)
            self._fail(error)
            return True
        finally:
            self._busy = None
        if self.error:
            self.error = ""
            lost = f"; {self.lost} transitions are lost" if self.lost else ""
            self._said.append(f"{self.path}: the history is written again{lost}")
        return True

    def _trim(self, store: HistoryStore) -> None:
        self._trimmed = time.monotonic()
        fits = store.trim(self._wall(), self._bounds.days, int(self._bounds.mib * _MIB))
        if self._fits and not fits:
            most = f"{self._bounds.mib:g} MiB"
            self._said.append(
                f"{self.path}: what holds now takes more than {most}: give a larger --history-size"
            )
        self._fits = fits

    def _opened(self) -> HistoryStore:
        if self._store is None:
            if self._damaged:
                self._set_aside()
            try:
                self._store = HistoryStore(self.path)
            except (DamagedFileError, sqlite3.DatabaseError) as error:
                if not _is_damaged(error):
                    raise
                self._damaged = str(error)
                self._set_aside()
                self._store = HistoryStore(self.path)
        return self._store

    def _set_aside(self) -> None:
        aside = self.path + DAMAGED_SUFFIX
        os.replace(self.path, aside)
        for rest in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(self.path + rest)
        self._said.append(
            f"{self.path} was damaged ({self._damaged}): it is set aside as {aside}, and begun anew"
        )
        self._damaged = ""

    def _fail(self, error: Exception) -> None:
        if self._store is not None:
            self._before += self._store.added
            with suppress(sqlite3.Error):
                self._store.close()
            self._store = None
        if isinstance(error, ForeignFileError):
            self._refused = True
            self.lost += len(self._steps)
            self._steps.clear()
            self._tell(f"{self.path}: {error}; until then no history is written")
        elif _is_damaged(error):
            self._damaged = str(error)
            self._tell(f"{self.path} is damaged ({error}): it will be set aside")
        elif isinstance(error, (HistoryFileError, OSError, sqlite3.Error)):
            self._tell(f"{self.path}: {_why(error)}; until then only the latest {_MOST} are kept, in memory")
        else:
            self._tell(f"error in the history, please report it: {type(error).__name__}: {error}")

    def _tell(self, why: str) -> None:
        if why != self.error:
            self.error = why
            self._said.append(why)


def _is_damaged(error: Exception) -> bool:
    """Whether a file is no database any more, and not only out of reach."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, DamagedFileError) or (
        code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    )


_REMEDIES = {
    sqlite3.SQLITE_FULL: "make room there, or give a smaller --history-size",
    sqlite3.SQLITE_BUSY: "let go of it, or name another --history",
    sqlite3.SQLITE_IOERR: "see to its disk, or name another --history",
}


def _why(error: Exception) -> str:
    """Why a file cannot be written, and the remedy."""
    if isinstance(error, OSError):
        return f"{error.strerror or error}: make room there, or let it be written, or name another --history"
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return f"{error}: {_REMEDIES.get(code, 'let it be written, or name another --history')}"
