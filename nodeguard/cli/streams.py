"""Standard output and error, which may be closed, full, of a narrow encoding, or a pipe that nobody reads."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

# The descriptors up to this one are standard input, output and error.
_LAST_STREAM = 2


class UnwritableError(Exception):
    """Standard output cannot be written to. Its text says why."""


def prepare_streams() -> None:
    """Make both fit to write to: what an encoding lacks is written as `?`."""
    # What is opened later must not be taken for a stream that was closed.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass
    os.close(opened)
    # Python has None for a stream that was closed, and print would send errors to standard output instead.
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as we
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_output(text: str, end: str = "\n") -> None:
    """Write to standard output, all of it now. Raises UnwritableError, and BrokenPipeError."""
    if sys.stdout is None:
        raise UnwritableError("standard output is closed: redirect it to a file or to /dev/null")
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(
            f"standard output: {error.strerror}: redirect it to where it can be written"
        ) from None


def print_error(text: str) -> None:
    """Write a line to standard error, where that is possible."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)


def discard_output() -> None:
    """Give up standard output, so that what is still buffered raises nothing when Python ends."""
    _give_up(sys.stdout)


def _give_up(stream: TextIO | None) -> None:
    if stream is None:
        return
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
