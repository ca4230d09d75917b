"""Turns of the ingest server: a limit of the work on agents' data in one iteration of the event loop.

An event loop passes on the data of all readable sockets before it runs any task. When a thousand agents
report at once, the first plan would wait for the last report.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

# Bytes of a read. A buffer of OpenSSL in each connection grows to the size of its largest read and stays.
READ_SIZE = 4096

# CPU seconds on data in one iteration of the event loop: about ten reports of nodes with 8 GPUs.
_TURN = 0.01


class ReadTurns:
    """Decides which connections process their data in this iteration, and which wait for a later one. The
    waiting connections continue in their order, before new data of others.

    buffer: for the reads of all connections. clock: returns the CPU seconds of this thread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.thread_time
    ) -> None:
        self.buffer = memoryview(bytearray(READ_SIZE))
        self._loop = loop
        self._clock = clock
        self._end: float | None = None
        self._waiting: deque[Callable[[], object]] = deque()

    def must_wait(self) -> bool:
        """Return whether this iteration has no time left for more data."""
        if self._waiting:
            return True
        if self._end is None:
            self._end = self._clock() + _TURN
            self._loop.call_soon(self._begin)
            return False
        return self._clock() >= self._end

    def wait(self, proceed: Callable[[], object]) -> None:
        """Call a function in a later iteration: it processes the data of a connection."""
        self._waiting.append(proceed)

    def _begin(self) -> None:
        """Begin the next turn, after the data of all readable sockets and before the tasks that they woke."""
        self._end = None
        if not self._waiting:
            return
        # First, so that an error of a connection does not stop the others.
        self._loop.call_soon(self._begin)
        end = self._clock() + _TURN
        while self._waiting:
            self._waiting.popleft()()
            if self._clock() >= end:
                break
