"""What goes wrong on the loop itself, as lines of the log."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from nodeguard.agent.transitions import Line

# Seconds between two lines of one kind.
_REST = 60.0


class Mishaps:
    """An exception handler of a loop: one line a minute for each kind of error, and never a traceback.

    log: takes the lines. clock: seconds.
    """

    def __init__(self, log: Callable[[Line], None], clock: Callable[[], float]) -> None:
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
