"""The agent as a Linux process: its memory allocator, systemd notifications, and errors of the event loop."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import socket
from contextlib import suppress
from typing import Any

logger = logging.getLogger(__name__)

# Parameters of mallopt in malloc.h of glibc, and glibc's own initial threshold in bytes.
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_THRESHOLD = 128 << 10


def limit_malloc() -> None:
    """Have glibc's malloc keep little free memory. Call this before the first thread starts.

    By default each thread has an arena of its own, up to eight a core, and the memory that a short-lived
    thread of a source leaves there is hardly reused. Long blocks get their own mapping only until the first
    one is freed. It does nothing with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


def release_free_memory() -> None:
    """Return the free memory of glibc's malloc to the kernel: the start needs more than the time after it."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


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


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001 - asyncio's
    """Log an error of the event loop. It is the exception handler of the loop."""
    error, message = context.get("exception"), str(context.get("message", ""))
    if isinstance(error, ValueError) and "file descriptor: -1" in str(error):
        return  # asyncio resumes to accept after it ran out of descriptors, although the server is closed
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        logger.error("too many open files, raise the limit", extra={"error": error.strerror})
    else:
        details = f"{message}: {type(error).__name__}: {error}" if error else message
        logger.error("error in the event loop, please report it", extra={"error": details})
