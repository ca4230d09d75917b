"""What goes wrong on the loop itself, as lines of the log."""

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

# Seconds between two lines of one kind.
_REST = 60.0


class LoopErrorHandler:
    """An exception handler of a loop: one line a minute for each kind of error, and never a traceback.

    log: takes the lines. clock: seconds.
    """

    def __init__(self, log: Callable[[LogLine], None], clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._told: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002 - asyncio's
        """Tell of an error, unless one of its kind was told of a moment ago."""
        error, what = context.get("exception"), str(context.get("message", ""))
        if isinstance(error, ValueError) and "file descriptor: -1" in str(error):
            return  # asyncio wants to accept again what was refused for want of descriptors, after the end
        kind = type(error).__name__ if error else what[:40]
        now = self._clock()
        if now - self._told.get(kind, -_REST) < _REST:
            return
        self._told[kind] = now
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            why = f"{error.strerror}: raise the limit on open files"
        else:
            why = f"please report it: {what}: {kind}: {error}" if error else f"please report it: {what}"
        self._log({"event": "error", "why": why})


_M_ARENA_MAX = -8  # malloc.h of glibc


def use_one_malloc_arena() -> None:
    """Have all threads allocate in one place. To be called before there are any.

    glibc gives each an arena of its own, eight a core, and what a source's thread of a moment leaves there
    is hardly used again. A C library without arenas is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def notify_systemd(state: str) -> None:
    """Send a state, such as `READY=1`, to who started us, where that wants to know; one that does not
    read is told nothing.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.send(state.encode())


def watchdog_interval() -> float:
    """Seconds between two signs of life, half of systemd's patience; 0 where it asks for none."""
    try:
        return max(0, int(os.environ.get("WATCHDOG_USEC", "0"))) / 2e6
    except ValueError:
        return 0.0
