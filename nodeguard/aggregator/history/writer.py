"""The history writer: a thread that writes transitions, so that a full or hanging disk blocks nothing."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from nodeguard.aggregator.history.file import DamagedFileError, ForeignFileError, HistoryFileError, is_damaged
from nodeguard.aggregator.history.queue import MAX_BYTES, TransitionQueue
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.state.history_events import RecordedEvent
from nodeguard.local.set_aside import set_aside

logger = logging.getLogger(__name__)

# Transitions in one write.
_BATCH = 500

# Seconds to collect transitions for a write; until the next attempt after an error; between two removals of
# old transitions; until a write counts as hanging; and for the last write.
_GATHER = 1.0
_RETRY = 30.0
_TRIM = 600.0
_HANGS = 30.0
_CLOSE_TIMEOUT = 2.0

_MIB = 1 << 20


class HistoryLimits(Struct, frozen=True):
    """Limits of a history. days: age of transitions; mib: size of the file in MiB."""

    days: float
    mib: float


class HistoryWriter:
    """Accepts transitions from any thread, without waiting. Its thread starts with the first one.

    added: transitions written since the start. size: of the file in bytes. error: why the last write failed,
    with the remedy; empty if it succeeded. is_renewed: whether a file without the transitions that were
    written before is in use since the recorder last reset this.
    """

    def __init__(
        self,
        path: str,
        bounds: HistoryLimits,
        wall: Callable[[], float] = time.time,
        again: float = _RETRY,
        gather: float = _GATHER,
    ) -> None:
        self.path = path
        self.added = self.size = 0
        self.error = ""
        self.is_renewed = False
        self._bounds = bounds
        self._wall, self._again, self._gather = wall, again, gather
        self._queue = TransitionQueue()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = self._refused = False
        self._busy: float | None = None
        self._was_opened = False
        self._store: HistoryStore | None = None
        self._damaged = ""
        self._before = 0
        self._trimmed = float("-inf")
        self._fits = True

    @property
    def problem(self) -> str:
        """Return why the last write failed, with the file and the remedy; empty if it succeeded."""
        return f"{self.path}: {self.error}" if self.error else ""

    @property
    def lost(self) -> int:
        """Return how many transitions were never written."""
        return self._queue.lost

    def put(self, step: RecordedEvent) -> None:
        """Write a transition."""
        with self._changed:
            if self._refused or self._closed:
                self._queue.lost += 1
                return
            self._queue.put(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="history", daemon=True)
                self._thread.start()
            self._changed.notify()

    def has_room(self) -> bool:
        """Return whether the queue takes transitions that are not urgent."""
        with self._changed:
            return self._queue.has_room()

    def take_lost(self) -> bool:
        """Return whether transitions were lost since this last returned it; not before the queue has room."""
        with self._changed:
            has_lost = self._queue.has_dropped and self._queue.has_room()
            self._queue.has_dropped &= not has_lost
            return has_lost

    def check_progress(self) -> None:
        """Set and log an error if a write hangs."""
        busy = self._busy
        if busy is not None and time.monotonic() - busy > _HANGS:
            self._set_error(
                f"the disk does not respond for {_HANGS:g} s: check it, or name another --history"
            )

    def close(self, within: float = _CLOSE_TIMEOUT) -> None:
        """Write the waiting transitions, within a time limit."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within)

    def _run(self) -> None:
        while steps := self._next():
            if self._write(steps):
                continue
            with self._changed:
                self._queue.put_back(steps)
                if self._refused or self._closed:
                    self._queue.clear()
                    break
                self._changed.wait_for(lambda: self._closed, self._again)
        if self._store is not None:
            self._store.close()

    def _next(self) -> list[RecordedEvent]:
        """Return the next transitions; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._changed.wait_for(lambda: len(self._queue) >= _BATCH or self._closed, self._gather)
            return self._queue.take(_BATCH)

    def _write(self, steps: list[RecordedEvent]) -> bool:
        """Write transitions. Returns whether that succeeded."""
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
        except Exception as error:  # noqa: BLE001 - data of one node must not end the history
            if len(steps) > 1:
                self._close_store()
                written = [self._write([step]) for step in steps]
                return all(written)
            with self._changed:
                self._queue.drop(steps[0])
            self._fail(error)
            return True
        finally:
            self._busy = None
        if self.error:
            self.error = ""
            logger.info("the history is written again", extra={"file": self.path, "lost": self.lost})
        return True

    def _trim(self, store: HistoryStore) -> None:
        self._trimmed = time.monotonic()
        fits = store.trim(self._wall(), self._bounds.days, int(self._bounds.mib * _MIB))
        if self._fits and not fits:
            logger.warning(
                "the current state exceeds the size of the history",
                extra={
                    "file": self.path,
                    "limit_mib": self._bounds.mib,
                    "remedy": "set a larger --history-size",
                },
            )
        self._fits = fits

    def _opened(self) -> HistoryStore:
        is_lost = self._store is not None and self._is_lost(self._store)
        if self._store is None:
            if self._damaged:
                self._set_aside()
            try:
                self._store = HistoryStore(self.path)
            except (DamagedFileError, sqlite3.DatabaseError) as error:
                if not is_damaged(error):
                    raise
                self._damaged = str(error)
                self._set_aside()
                self._store = HistoryStore(self.path)
            # After an error the file may be removed or renamed while it is closed.
            if self._was_opened and (is_lost or self._store.was_empty):
                self.is_renewed = True
            self._was_opened = True
        return self._store

    def _is_lost(self, store: HistoryStore) -> bool:
        """Return whether another program removed, replaced or wrote the file. Its store is closed."""
        if store.is_in_place() and store.is_overwritten():
            self._damaged = "another program wrote over it"
            self._close_store()
        elif store.is_in_place() and store.is_written_by_others():
            logger.warning("the history was changed: it is read again", extra={"file": self.path})
            self._close_store()
        elif store.is_replaced():
            logger.warning("the history was replaced: the new file is continued", extra={"file": self.path})
            self._before += store.added
            self._store = None
            store.abandon()
        elif not store.is_in_place():
            logger.warning("the history was removed: a new one is created", extra={"file": self.path})
            self._close_store()
        else:
            return False
        return True

    def _set_aside(self) -> None:
        aside = set_aside(self.path)
        for rest in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(self.path + rest)
        logger.warning(
            "renamed a damaged history and created a new one",
            extra={"file": self.path, "renamed_to": aside, "error": self._damaged},
        )
        self._damaged = ""

    def _close_store(self) -> None:
        if self._store is not None:
            self._before += self._store.added
            with suppress(sqlite3.Error):
                self._store.close()
            self._store = None

    def _fail(self, error: Exception) -> None:
        self._close_store()
        if isinstance(error, ForeignFileError):
            self._refused = True
            self._set_error(f"{error}; until then no history is written")
        elif is_damaged(error):
            self._damaged = str(error)
            self._set_error(f"the file is damaged ({error}): it will be renamed")
        elif isinstance(error, (HistoryFileError, OSError, sqlite3.Error)):
            self._set_error(
                f"{_reason(error)}; until then the latest {MAX_BYTES >> 20} MiB of transitions wait in memory"
            )
        else:
            self._set_error(f"internal error, please report it: {type(error).__name__}: {error}")

    def _set_error(self, error: str) -> None:
        self.error = error
        logger.error("cannot write the history", extra={"file": self.path, "error": error})


_REMEDIES = {
    sqlite3.SQLITE_FULL: "make room there, or set a smaller --history-size",
    sqlite3.SQLITE_BUSY: "close the other program, or name another --history",
    sqlite3.SQLITE_IOERR: "check the disk, or name another --history",
}


_OS_REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.ENOENT: "create its directory",
    errno.EIO: "check the disk",
}


def _reason(error: Exception) -> str:
    """Return why a file cannot be written, and the remedy."""
    if isinstance(error, OSError):
        remedy = _OS_REMEDIES.get(error.errno or 0, "make it writable")
        return f"{error.strerror or error}: {remedy}, or name another --history"
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return f"{error}: {_REMEDIES.get(code, 'make it writable, or name another --history')}"
