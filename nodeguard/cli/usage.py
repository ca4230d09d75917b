"""What commands share: exit codes, words of the command line, and errors that a user can act on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import IO, Any, NoReturn

from nodeguard.cli.streams import print_error, print_output
from nodeguard.config.units import parse_fractional_duration

# Exit codes of the monitoring-plugins convention.
OK, WARNING, FATAL, UNKNOWN = 0, 1, 2, 3


class UsageError(Exception):
    """Something that the user can put right. Its text says what is wrong and how to mend it."""


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose errors end with UNKNOWN, as 2 means fatal here."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave."""
        print_error(f"{self.prog}: {message}; see {self.prog} --help")
        raise SystemExit(UNKNOWN)

    def print_help(self, file: IO[str] | Any = None) -> None:
        """Print what the command takes; to standard output as everything is printed."""
        if file is not None:
            super().print_help(file)
        else:
            print_output(self.format_help(), end="")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question whether one of the known names was meant, empty where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a misspelt name

    found = get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(found)}? Or " if found else ""


def duration(text: str, most: float = 30 * 86_400) -> float:
    """Seconds of a length of time: `30s`, `10m`, `2h`, `1d`, or a bare number of seconds. most: seconds that
    it may be.

    Raises ArgumentTypeError.
    """
    try:
        seconds = parse_fractional_duration(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is no length of time: write it like 30s, 10m or 2h")
    return seconds


def address(text: str) -> tuple[str, int]:
    """Host and port of a place to listen at, as `127.0.0.1:9434`. Raises ArgumentTypeError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is no HOST:PORT: write it like 127.0.0.1:9434")
    host = host.strip("[]")
    if not host:
        raise argparse.ArgumentTypeError(
            f"'{text}' names no host: write 127.0.0.1:{port}, or 0.0.0.0:{port} for all"
        )
    return host, int(port)
