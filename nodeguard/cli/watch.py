"""Repeated output of a command: `--watch`."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import NoReturn

from nodeguard.cli.streams import is_terminal, print_output
from nodeguard.cli.usage import ArgumentParser, duration

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
