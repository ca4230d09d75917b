"""A log of JSON lines, written by a thread of its own: the reader of a pipe may be slow."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections import deque

from nodeguard.model.instant import rfc3339

# Lines that wait to be written; further lines are dropped and counted.
_MOST = 1000

# Seconds for the last lines to be written.
_LAST = 0.5

# The fields of a line by name.
LogLine = dict[str, object]


class JsonLog:
    """Takes lines from any thread and never waits.

    descriptor: of the output, which gets whole lines in order. node: its name, in each line. most: lines that
    may wait.
    """

    def __init__(self, descriptor: int, node: str, most: int = _MOST) -> None:
        self._descriptor = descriptor
        self._node = node
        self._most = most
        self._lines: deque[bytes] = deque()
        self._lost = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __call__(self, line: LogLine) -> None:
        """Take a line. The first one after dropped lines has their number, as `lost`."""
        with self._changed:
            if len(self._lines) >= self._most:
                self._lost += 1
                return
            lost: LogLine = {"lost": self._lost} if self._lost else {}
            fields = {"at": rfc3339(time.time()), "node": self._node, **line, **lost}
            self._lines.append(json.dumps(fields, ensure_ascii=False).encode(errors="replace") + b"\n")
            self._lost = 0
            self._begin()
            self._changed.notify()

    def close(self) -> None:
        """Write the lines that wait, for half a second at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if self._lines:
                self._begin()
        if self._thread is not None:
            self._thread.join(_LAST)
        elif self._lines:
            self._write_while(_LAST)

    def _begin(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._write_all, name="log", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # no thread can be started now: the next line tries again
            self._thread = thread

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closed:
                    self._changed.wait()
                if not self._lines:
                    return
                line = self._lines.popleft()
            self._write(line)

    def _write_while(self, seconds: float) -> None:
        """Write without a thread while the output accepts data."""
        end = time.monotonic() + seconds
        while self._lines and self._is_writable(max(0.0, end - time.monotonic())):
            self._write(self._lines.popleft())

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                self._is_writable(None)  # the descriptor is shared and non-blocking
            except OSError:
                with self._changed:
                    self._lost += 1
                return

    def _is_writable(self, seconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(None if seconds is None else seconds * 1000))
