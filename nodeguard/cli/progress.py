"""A line on standard error that says how far something that lasts has come; erased at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from nodeguard.judge.formatting import format_duration


@contextmanager
def progress(doing: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Show what is being done for so many seconds, while inside; nothing for 0 or without a terminal.

    clock: seconds, never jumps.
    """
    if not seconds or not sys.stderr.isatty():
        yield
        return
    over = Event()
    ends = clock() + seconds
    telling = Thread(target=_tell, args=(doing, over, lambda: ends - clock()), daemon=True)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()


def _tell(doing: str, over: Event, left: Callable[[], float]) -> None:
    wide = 0
    while True:
        line = progress_text(doing, left())
        _write(f"\r{line:<{wide}}")
        wide = max(wide, len(line))
        if over.wait(1.0):
            _write(f"\r{'':<{wide}}\r")
            return


def progress_text(doing: str, left: float) -> str:
    """The line, so many seconds before the end."""
    return f"{doing}: {f'{format_duration(round(left))} left' if left >= 1 else 'almost done'}"


def _write(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
