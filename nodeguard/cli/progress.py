"""Output of commands that take long: progress on standard error, and repeated output with `--watch`."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import NoReturn

from nodeguard.cli.streams import is_terminal, print_output
from nodeguard.cli.usage import ArgumentParser, duration
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
def elapsed(task: str) -> Iterator[None]:
    """Show a task of unknown length while inside, once it takes more than two seconds."""
    began = time.monotonic()
    with _shown(lambda: f"{task}: {format_duration(max(1.0, round(time.monotonic() - began)))}", _PATIENCE):
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


# Moves the cursor to the top left corner, and clears what follows: no flicker, unlike clearing first.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def add_watch(parser: ArgumentParser) -> None:
    """Add -w and --interval."""
    parser.add_argument("-w", "--watch", action="store_true", help="refresh until interrupted")
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=duration,
        default=2.0,
        help="with --watch: time between refreshes (2s)",
    )


def print_or_watch(render: Callable[[], str], options: Namespace) -> None:
    """Print an output; with --watch again and again, in place on a terminal."""
    if options.watch:
        _watch(render, options.interval)
    print_output(render())


def _watch(render: Callable[[], str], interval: float) -> NoReturn:
    if is_terminal():
        print_output("\x1b[2J", end="")
    while True:
        text = render()
        if is_terminal():
            lines = text.replace("\n", f"{_CLEAR_LINE}\n")
            print_output(f"{_HOME}{lines}{_CLEAR_LINE}\n{_CLEAR_BELOW}", end="")
        else:
            print_output(text)
        time.sleep(interval)
