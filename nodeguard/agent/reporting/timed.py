"""A connected socket that keeps one deadline and one limit over a whole exchange, however slow it drips."""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class OverdueError(OSError):
    """An exchange that is not over at its deadline."""


class OverlongError(OSError):
    """An answer of more bytes than the limit."""


class TimedSocket:
    """What http.client needs of a socket. start begins an exchange, and is called before each."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._deadline = 0.0
        self._left = 0
        self._readers = 0
        self._closed = False

    def start(self, seconds: float, limit: int) -> None:
        """Give the next exchange so many seconds, and its answer so many bytes with its headers."""
        self._deadline = time.monotonic() + seconds
        self._left = limit

    def sendall(self, data: Any) -> None:
        """Send bytes. Raises OverdueError, OSError."""
        view = memoryview(data).cast("B")
        while view:
            self._set_timeout()
            try:
                view = view[self._sock.send(view) :]
            except TimeoutError:
                raise OverdueError from None

    def receive_into(self, buffer: Any) -> int:
        """Receive some bytes, 0 at the end. Raises OverdueError, OverlongError, OSError."""
        self._set_timeout()
        if self._left <= 0:
            raise OverlongError
        try:
            count = self._sock.recv_into(memoryview(buffer)[: self._left])
        except TimeoutError:
            raise OverdueError from None
        self._left -= count
        return count

    def makefile(self, mode: str = "rb", *_: object, **__: object) -> io.BufferedReader:
        """The answer as a file, to be read only."""
        assert "r" in mode
        self._readers += 1
        return io.BufferedReader(_Receiving(self), 8192)

    def close(self) -> None:
        """Close the connection, once its answer is read: http.client closes before that."""
        self._closed = True
        if self._readers <= 0:
            self._sock.close()

    def abort(self) -> None:
        """Close the connection at once, whatever is left unread."""
        self._readers, self._closed = 0, True
        self._sock.close()

    def reader_closed(self) -> None:
        """A file of an answer was closed."""
        self._readers -= 1
        if self._closed:
            self.close()

    def _set_timeout(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise OverdueError
        self._sock.settimeout(left)


class _Receiving(io.RawIOBase):
    def __init__(self, sock: TimedSocket) -> None:
        super().__init__()
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.receive_into(buffer)

    def close(self) -> None:
        if not self.closed:
            self._sock.reader_closed()
        super().close()
