"""A connected socket that keeps one deadline and one limit over a whole exchange, however slow it drips."""

from __future__ import annotations

import io
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from nodeguard.agent.reporting.hurry import Hurry

Found = TypeVar("Found")


class OverlongError(OSError):
    """An answer of more bytes than the limit."""


class TimedSocket:
    """What http.client needs of a socket. start begins an exchange, and is called before each.

    sock: connected, and one that never waits. hurry: may end an exchange before its deadline.
    """

    def __init__(self, sock: socket.socket, hurry: Hurry) -> None:
        self._sock = sock
        self._hurry = hurry
        self._deadline = 0.0
        self._left = 0
        self._readers = 0
        self._closed = False

    def start(self, deadline: float, limit: int) -> None:
        """Give the next exchange until a moment, and its answer so many bytes with its headers."""
        self._deadline = deadline
        self._left = limit

    def sendall(self, data: Any) -> None:
        """Send bytes. Raises OverdueError, OSError."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self._now_or_later(self._sock.send, view, select.POLLOUT) :]

    def receive_into(self, buffer: Any) -> int:
        """Receive some bytes, 0 at the end. Raises OverdueError, OverlongError, OSError."""
        if self._left <= 0:
            raise OverlongError
        room = memoryview(buffer)[: self._left]
        count = self._now_or_later(self._sock.recv_into, room, select.POLLIN)
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

    def _now_or_later(self, call: Callable[[memoryview], int], view: memoryview, event: int) -> int:
        return patiently(lambda: call(view), self._sock, event, self._hurry, self._deadline)


def patiently(
    call: Callable[[], Found], sock: socket.socket, event: int, hurry: Hurry, deadline: float
) -> Found:
    """What a call on a socket that never waits gives, once that is ready. Raises OverdueError, OSError.

    event: which readiness it lacks, where it does not say itself as TLS does.
    """
    while True:
        hurry.left(deadline)
        try:
            return call()
        except BlockingIOError:
            hurry.wait(sock, event, deadline)
        except ssl.SSLWantReadError:
            hurry.wait(sock, select.POLLIN, deadline)
        except ssl.SSLWantWriteError:
            hurry.wait(sock, select.POLLOUT, deadline)


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
