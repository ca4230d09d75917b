"""Progress on standard error of a command that takes long; erased at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from nodeguard.judge.formatting import format_duration

# Seconds after which a task of unknown length shows its progress.
_PATIENCE = 2.0


@contextmanager
def progress(task: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Show a task of known length while inside; nothing for 0 seconds or without a terminal.

    clock: seconds, never jumps.
    """
    ends = clock() + seconds
    with _shown(lambda: progress_text(task, ends - clock()), 0.0 if seconds else None):
        yield


@contextmanager
def elapsed(task: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Show a task of unknown length while inside, once it takes more than two seconds."""
    began = clock()
    with _shown(lambda: f"{task}: {format_duration(max(1.0, round(clock() - began)))}", _PATIENCE):
        yield


@contextmanager
def _shown(text: Callable[[], str], delay: float | None) -> Iterator[None]:
    if delay is None or not sys.stderr.isatty():
        yield
        return
    done = Event()
    thread = Thread(target=_show, args=(text, delay, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(text: Callable[[], str], delay: float, done: Event) -> None:
    if done.wait(delay):
        return
    width = 0
    while True:
        line = text()
        _write(f"\r{line:<{width}}")
        width = max(width, len(line))
        if done.wait(1.0):
            _write(f"\r{'':<{width}}\r")
            return


def progress_text(task: str, seconds_left: float) -> str:
    """Return the line that shows how much of a task is left."""
    return f"{task}: {f'{format_duration(round(seconds_left))} left' if seconds_left >= 1 else 'almost done'}"


def _write(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
