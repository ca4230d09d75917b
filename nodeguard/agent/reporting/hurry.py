"""A moment by which whoever waits on a connection must be done; another thread may bring it forward."""

from __future__ import annotations

import math
import os
import select
import socket
import time
from contextlib import suppress
from weakref import finalize


class OverdueError(OSError):
    """An exchange that is not over at its deadline."""


class Hurry:
    """until: the moment, of the clock that never jumps; infinite where there is no hurry."""

    def __init__(self) -> None:
        self.until = math.inf
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        finalize(self, os.close, self._bell)

    def by(self, until: float) -> None:
        """Have everything done by a moment, what is under way as well. The latest word counts."""
        self.until = until
        os.eventfd_write(self._bell, 1)

    def left(self, deadline: float) -> float:
        """Seconds until a deadline, or sooner where there is hurry. Raises OverdueError where none are."""
        left = min(deadline, self.until) - time.monotonic()
        if left <= 0:
            raise OverdueError
        return left

    def wait(self, sock: socket.socket, event: int, deadline: float) -> None:
        """Wait until a socket is ready. event: select.POLLIN or POLLOUT. Raises OverdueError."""
        poll = select.poll()
        poll.register(sock, event)
        poll.register(self._bell, select.POLLIN)
        ready: set[int] = set()
        while sock.fileno() not in ready:
            ready = {number for number, _ in poll.poll(math.ceil(self.left(deadline) * 1000))}
            if self._bell in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
