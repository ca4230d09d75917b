"""Turns of the ingest server: a limit of the work on agents' data in one iteration of the event loop.

An event loop passes on the data of all readable sockets before it runs any task. When a thousand agents
report at once, the first plan would wait for the last report.

TLS connections take turns. Plain HTTP (`--standalone --insecure`, a demonstration) does not: it is for agents
of this machine only.
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
        # The end of the present turn; set exactly while the next one is scheduled.
        self._end: float | None = None
        self._waiting: deque[Callable[[], object]] = deque()

    def begin_turn(self) -> bool:
        """Return whether new data may be processed now; it begins a turn if there is none.

        If not, call `wait`.
        """
        end = self._begin() if self._end is None else self._end
        return not self._waiting and self._clock() < end

    def wait(self, proceed: Callable[[], object]) -> None:
        """Call a function in a later iteration: it processes the data of a connection."""
        self._waiting.append(proceed)

    def _begin(self) -> float:
        """Begin a turn, and schedule the next one. Return its end."""
        self._loop.call_soon(self._continue)
        self._end = end = self._clock() + _TURN
        return end

    def _continue(self) -> None:
        """Process waiting data, after that of all readable sockets and before the tasks that it woke."""
        if not self._waiting:
            self._end = None
            return
        # First, so that an error of a connection does not stop the others.
        end = self._begin()
        while self._waiting:
            self._waiting.popleft()()
            if self._clock() >= end:
                break
