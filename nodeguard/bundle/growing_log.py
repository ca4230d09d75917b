"""GrowingLog: follows the kmsg of a bundle that is still written: a growing file, or a named pipe."""

from __future__ import annotations

import math
import os
import select
import stat
import time
from contextlib import suppress

from msgspec import Struct

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.inotify import Inotify
from nodeguard.bundle.kmsg import LogLines, parse_lines

# Bytes of one reading, some hundred thousand records; the next reading returns the rest.
_MAX_BYTES = 16 << 20
_CHUNK = 64 << 10
# Bytes after which a line without an end is cut; no record is longer (CONSOLE_EXT_LOG_MAX).
_LONGEST = 16 << 10
# Bytes before the read position, by which a replaced file is recognised.
_TAIL = 4 << 10


class LogUpdate(Struct, frozen=True):
    """New lines of the log.

    existing: lines that the file had when it was first opened. appended: later lines. defect: why nothing
    more can be read. more: whether there are more lines to read.
    """

    existing: LogLines = LogLines()
    appended: LogLines = LogLines()
    defect: BundleError | None = None
    more: bool = False


class GrowingLog:
    """Reads complete lines, each once.

    path: of the file or pipe, which may be created later. If a file is replaced by one with the same
    beginning, reading continues; a file that was truncated or rewritten is read from its beginning. A pipe
    stays open, so that writers may come and go. Raises BundleError if the path is neither at the start.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._is_pipe = self._is_registered = False
        self._at = self._line = 0
        self._tail = self._rest = b""
        self._epoll = select.epoll()
        self._waiting = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._waiting, select.EPOLLIN)
        self._inotify: Inotify | None = None
        self._open()
        plain = self._descriptor >= 0 and not self._is_pipe
        self._initial_size = os.fstat(self._descriptor).st_size if plain else 0
        self._register_pipe(wanted=self._is_pipe)

    def watch(self) -> None:
        """Notice the growth of a file too, as of a pipe. Raises OSError without inotify."""
        self._inotify = Inotify()
        self._inotify.watch(os.path.dirname(self._path) or ".")
        self._epoll.register(self._inotify, select.EPOLLIN)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be new lines."""
        return self._epoll.fileno()

    def read(self, within: float = math.inf) -> LogUpdate:
        """Return the new lines, within seconds."""
        self.clear_ready()
        until = time.monotonic() + within
        first, size = self._line + 1, 0
        before: list[bytes] = []
        since: list[bytes] = []
        more, defect = True, None
        try:
            while more and size < _MAX_BYTES and time.monotonic() <= until:
                lines = before if self._at < self._initial_size else since
                data = self._next()
                lines += self._lines(data)
                size += len(data)
                more = bool(data) or self._open()
        except BundleError as error:
            more, defect = False, error
        if more:
            os.eventfd_write(self._waiting, 1)
        self._register_pipe(wanted=self._is_pipe)
        old = parse_lines(before, self._path, first)
        return LogUpdate(old, parse_lines(since, self._path, first + len(before)), defect, more)

    def clear_ready(self) -> None:
        """Reset readiness without reading, until `read` or until more lines come."""
        if self._inotify is not None:
            self._inotify.take()
        with suppress(BlockingIOError):
            os.eventfd_read(self._waiting)
        self._register_pipe(wanted=False)

    def _next(self) -> bytes:
        """Return unread bytes, empty if there are none."""
        if self._descriptor < 0:
            return b""
        try:
            if self._is_pipe:
                return os.read(self._descriptor, _CHUNK)
            if self._is_other():
                self._begin()
            # Existing and appended lines are separate: no chunk may have both.
            room = min(_CHUNK, self._initial_size - self._at) if self._at < self._initial_size else _CHUNK
            return os.pread(self._descriptor, room, self._at)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def _is_other(self) -> bool:
        """Return whether the file no longer begins with the bytes that were read.

        An empty file does not count: an editor may be about to rewrite it with more lines.
        """
        size = os.fstat(self._descriptor).st_size
        if size < self._at:
            return size > 0
        start = self._at - len(self._tail)
        return os.pread(self._descriptor, len(self._tail), start) != self._tail

    def _begin(self) -> None:
        self._at = self._line = self._initial_size = 0
        self._tail = self._rest = b""

    def _lines(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, without their newlines."""
        self._at += len(data)
        self._tail = (self._tail + data)[-_TAIL:]
        *lines, self._rest = (self._rest + data).split(b"\n")
        # The last line of a recording needs no newline. A line without an end must not fill the memory.
        if self._rest and (self._at == self._initial_size or len(self._rest) > _LONGEST):
            lines.append(self._rest)
            self._rest = b""
        self._line += len(lines)
        return lines

    def _open(self) -> bool:
        """Open the file at the path. Return whether it is another file than before."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unreadable(self._path, error) from error
        if self._descriptor >= 0 and os.path.samestat(status, os.fstat(self._descriptor)):
            return False
        pipe = stat.S_ISFIFO(status.st_mode)
        if not (pipe or stat.S_ISREG(status.st_mode)):
            raise BundleError(self._path, "", "is neither file nor pipe", "put the file itself there")
        flags = (os.O_RDWR if pipe else os.O_RDONLY) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        self._shut()
        if pipe or self._is_pipe:
            self._begin()
        self._descriptor, self._is_pipe = descriptor, pipe
        return True

    def _register_pipe(self, *, wanted: bool) -> None:
        """Set whether bytes in the pipe make the descriptor readable."""
        if wanted and not self._is_registered:
            self._epoll.register(self._descriptor, select.EPOLLIN)
        elif self._is_registered and not wanted:
            self._epoll.unregister(self._descriptor)
        self._is_registered = wanted

    def _shut(self) -> None:
        self._register_pipe(wanted=False)
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def close(self) -> None:
        """Stop reading and close all descriptors."""
        self._shut()
        self._epoll.close()
        os.close(self._waiting)
        if self._inotify is not None:
            self._inotify.close()


def _unreadable(path: str, error: OSError) -> BundleError:
    return BundleError(path, "", f"cannot be read ({error.strerror})", "make it readable")
