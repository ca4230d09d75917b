"""A bundle's kmsg that goes on: a file that grows, or a named pipe."""

from __future__ import annotations

import math
import os
import select
import stat
import time
from contextlib import suppress

from msgspec import Struct

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.inotify import Inotify
from nodeguard.bundle.kmsg import LogLines, parse_lines

# Bytes of one reading, some hundred thousand records; what is beyond waits for the next one.
_MOST = 16 << 20
_CHUNK = 64 << 10
# Bytes of a line that has no end; no record is longer (CONSOLE_EXT_LOG_MAX).
_LONGEST = 16 << 10
# Bytes before the place that was read to, by which a file is known again.
_TAIL = 4 << 10


class LogUpdate(Struct, frozen=True):
    """What is new.

    before: what lay in the file when it was first opened; since: what came. defect: why no more can be read.
    more: whether others wait.
    """

    existing: LogLines = LogLines()
    appended: LogLines = LogLines()
    defect: BundleError | None = None
    more: bool = False


class GrowingLog:
    """Reads whole lines, each once.

    path: where the file or pipe is, or will be. A file that was replaced by one that begins alike is read on;
    one that was cut or written anew is read from its beginning. A pipe is held open, so that its writers may
    come and go. Raises BundleError where it is neither at the start.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._is_pipe = self._is_heard = False
        self._at = self._line = 0
        self._tail = self._rest = b""
        self._news = select.epoll()
        self._waiting = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._news.register(self._waiting, select.EPOLLIN)
        self._inotify: Inotify | None = None
        self._open()
        plain = self._descriptor >= 0 and not self._is_pipe
        self._lay = os.fstat(self._descriptor).st_size if plain else 0
        self._hear(wanted=self._is_pipe)

    def watch(self) -> None:
        """Have a file's growth noticed, as a pipe's is. Raises OSError where the kernel does not tell."""
        self._inotify = Inotify()
        self._inotify.watch(os.path.dirname(self._path) or ".")
        self._news.register(self._inotify, select.EPOLLIN)

    def fileno(self) -> int:
        """Readable when there may be something new."""
        return self._news.fileno()

    def read(self, within: float = math.inf) -> LogUpdate:
        """What is new, to the end or for so many seconds."""
        self.clear_ready()
        until = time.monotonic() + within
        first, size = self._line + 1, 0
        before: list[bytes] = []
        since: list[bytes] = []
        more, defect = True, None
        try:
            while more and size < _MOST and time.monotonic() <= until:
                lines = before if self._at < self._lay else since
                data = self._next()
                lines += self._lines(data)
                size += len(data)
                more = bool(data) or self._open()
        except BundleError as error:
            more, defect = False, error
        if more:
            os.eventfd_write(self._waiting, 1)
        self._hear(wanted=self._is_pipe)
        old = parse_lines(before, self._path, first)
        return LogUpdate(old, parse_lines(since, self._path, first + len(before)), defect, more)

    def clear_ready(self) -> None:
        """Leave unread what is new; it is no reason to look any more, until `read` or more comes."""
        if self._inotify is not None:
            self._inotify.take()
        with suppress(BlockingIOError):
            os.eventfd_read(self._waiting)
        self._hear(wanted=False)

    def _next(self) -> bytes:
        """Bytes that were not read, empty where there are none."""
        if self._descriptor < 0:
            return b""
        try:
            if self._is_pipe:
                return os.read(self._descriptor, _CHUNK)
            if self._is_other():
                self._begin()
            # What lay there is told apart, so that no piece has both.
            room = min(_CHUNK, self._lay - self._at) if self._at < self._lay else _CHUNK
            return os.pread(self._descriptor, room, self._at)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def _is_other(self) -> bool:
        """Whether what was read is not what the file begins with. One that is empty may be about to be
        written anew with more at its end, as an editor does.
        """
        size = os.fstat(self._descriptor).st_size
        if size < self._at:
            return size > 0
        start = self._at - len(self._tail)
        return os.pread(self._descriptor, len(self._tail), start) != self._tail

    def _begin(self) -> None:
        self._at = self._line = self._lay = 0
        self._tail = self._rest = b""

    def _lines(self, data: bytes) -> list[bytes]:
        """The lines that these bytes end, without their newlines."""
        self._at += len(data)
        self._tail = (self._tail + data)[-_TAIL:]
        *lines, self._rest = (self._rest + data).split(b"\n")
        # The last line of a recording needs no newline; nor may one without an end fill the memory.
        if self._rest and (self._at == self._lay or len(self._rest) > _LONGEST):
            lines.append(self._rest)
            self._rest = b""
        self._line += len(lines)
        return lines

    def _open(self) -> bool:
        """Open what is at the path. Returns whether that is another file than before."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unreadable(self._path, error) from error
        if self._descriptor >= 0 and os.path.samestat(found, os.fstat(self._descriptor)):
            return False
        pipe = stat.S_ISFIFO(found.st_mode)
        if not (pipe or stat.S_ISREG(found.st_mode)):
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

    def _hear(self, *, wanted: bool) -> None:
        """Whether bytes in the pipe count as news."""
        if wanted and not self._is_heard:
            self._news.register(self._descriptor, select.EPOLLIN)
        elif self._is_heard and not wanted:
            self._news.unregister(self._descriptor)
        self._is_heard = wanted

    def _shut(self) -> None:
        self._hear(wanted=False)
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def close(self) -> None:
        """Read nothing any more."""
        self._shut()
        self._news.close()
        os.close(self._waiting)
        if self._inotify is not None:
            self._inotify.close()


def _unreadable(path: str, error: OSError) -> BundleError:
    return BundleError(path, "", f"cannot be read ({error.strerror})", "make it readable")
