"""The agent as a Linux process: its memory allocator, systemd notifications, and errors of the event loop."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nodeguard.agent.transitions import LogLine

_M_ARENA_MAX = -8  # malloc.h of glibc

# Seconds between two log lines about one kind of error.
_INTERVAL = 60.0


def use_one_malloc_arena() -> None:
    """Have all threads share one arena of glibc's malloc. Call this before the first thread starts.

    By default each thread has an arena of its own, up to eight a core, and the memory that a short-lived
    thread of a source leaves there is hardly reused. It does nothing with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def notify_systemd(state: str) -> None:
    """Send a state, such as `READY=1`, to systemd if it started this process. Source: sd_notify(3).

    It never waits: if systemd does not read, the state is lost.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.send(state.encode())


def watchdog_interval() -> float:
    """Return the seconds between two watchdog notifications, half of WatchdogSec; 0 without a watchdog."""
    try:
        return max(0, int(os.environ.get("WATCHDOG_USEC", "0"))) / 2e6
    except ValueError:
        return 0.0


class LoopErrorHandler:
    """The exception handler of an event loop: one log line a minute for each kind of error, no traceback.

    log: takes the lines. clock: returns seconds.
    """

    def __init__(self, log: Callable[[LogLine], None], clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._logged_at: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002 - asyncio's
        """Log an error, unless one of its kind was logged in the last minute."""
        error, message = context.get("exception"), str(context.get("message", ""))
        if isinstance(error, ValueError) and "file descriptor: -1" in str(error):
            return  # asyncio resumes to accept after it ran out of descriptors, although the server is closed
        kind = type(error).__name__ if error else message[:40]
        now = self._clock()
        if now - self._logged_at.get(kind, -_INTERVAL) < _INTERVAL:
            return
        self._logged_at[kind] = now
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            reason = f"{error.strerror}: raise the limit on open files"
        elif error:
            reason = f"please report it: {message}: {kind}: {error}"
        else:
            reason = f"please report it: {message}"
        self._log({"event": "error", "reason": reason})
