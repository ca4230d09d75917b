"""Command-line parsing that all commands share: exit codes, errors with a remedy, and types of arguments."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import IO, Any, NoReturn

from nodeguard.cli.program import as_typed
from nodeguard.cli.streams import print_error, print_output, set_color
from nodeguard.config.units import parse_fractional_duration
from nodeguard.model.failure import UserError

# Exit codes of the monitoring-plugins convention.
OK, WARNING, FATAL, UNKNOWN = 0, 1, 2, 3

# The error of a command that needs the aggregator's packages. It names no package of a public index:
# nodeguard is on none, so anyone could register the name.
MISSING_EXTRA = (
    "the packages of the aggregator are missing: in a clone run "
    f"{sys.executable} -m pip install '.[aggregator]', or name the wheel of a release in place of the dot"
)

# Characters of an abbreviation of a name.
_ABBREVIATION = 2

# Characters of an address: far more than any has, far less than a report holds.
_MAX_URL_BASE = 512

# Characters of an argument that a message repeats: an argument, or standard input, may be a whole log.
_MAX_QUOTED = 120

_CHOICE = re.compile(
    r"argument (?P<name>.+?): invalid choice: '(?P<value>.*)' \(choose from (?P<choices>.*)\)"
)


# Arguments that are values and no options: argparse's own pattern has no units.
_NEGATIVE_NUMBER = re.compile(r"-[0-9]*\.?[0-9]+[smhd]?$")


class UsageError(UserError):
    """A command that cannot be carried out as it was written, or an object that does not exist."""


class _ColorAction(argparse.Action):
    def __call__(self, *arguments: Any, **_: Any) -> None:
        set_color(str(arguments[2]))


class ArgumentParser(argparse.ArgumentParser):
    """A parser of one command. Its errors end with UNKNOWN, since argparse's 2 means fatal here.

    examples: command lines that its help shows.
    """

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)
        self._negative_number_matcher = _NEGATIVE_NUMBER
        self.add_argument("--color", choices=("auto", "always", "never"), default=argparse.SUPPRESS,
            action=_ColorAction, help="when to use colors (auto: on a terminal)")  # fmt: skip

    def add_subparsers(self, **options: Any) -> Any:
        """Add the parts of the command; the help of a part shows the examples that begin with its words."""

        def part(prog: str, **settings: Any) -> ArgumentParser:
            own = [example for example in self.examples if f"{example} ".startswith(f"{prog} ")]
            return ArgumentParser(prog=prog, examples=own, **settings)

        settings: dict[str, Any] = {"parser_class": part, **options}  # argparse only calls the class
        return super().add_subparsers(**settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments. An unknown option is reported before a required one that is missing: the unknown
        one is often its misspelt name.
        """
        # The parser of a part of a command has its options.
        words = () if self._subparsers is not None else sys.argv[1:] if args is None else args
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            is_known = any(option.startswith(name) for option in self._option_string_actions)
            if name.startswith("--") and " " not in word and not is_known:
                options = (option[2:] for option in self._option_string_actions if option.startswith("--"))
                similar = " or ".join(f"--{option}" for option in _similar(name[2:], options))
                self.error(
                    f"unrecognized arguments: {name}" + (f": did you mean {similar}?" if similar else "")
                )
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the problem and exit."""
        choice = _CHOICE.fullmatch(message)
        if choice is not None:
            allowed = re.findall(r"'([^']*)'", choice["choices"]) or choice["choices"].split(", ")
            hint = did_you_mean(choice["value"], allowed)
            message = f"{choice['name']}: '{choice['value']}' is invalid: {hint}expected {', '.join(allowed)}"
        stop = " See" if message.endswith("?") else "; see"
        print_error(as_typed(f"{self.prog}: {message}{stop} {self.prog} --help"))
        raise SystemExit(UNKNOWN)

    def format_help(self) -> str:
        """Return the help, with the examples at its end."""
        examples = "".join(f"  {example}\n" for example in self.examples)
        return as_typed(super().format_help() + (f"\nexamples:\n{examples}" if examples else ""))

    def print_help(self, file: IO[str] | Any = None) -> None:
        """Print the help to standard output, with the errors of print_output."""
        if file is not None:
            super().print_help(file)
        else:
            print_output(self.format_help(), end="")


def quoted(text: str) -> str:
    """Return the text of an argument in quotes for a message, cut to a readable length."""
    return f"'{text}'" if len(text) <= _MAX_QUOTED else f"'{text[: _MAX_QUOTED - 1]}…'"


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the question whether a similar name was meant, or one that begins like it; empty for none."""
    matches = _similar(name, candidates)
    return f"did you mean {' or '.join(matches)}? Or " if matches else ""


def _similar(name: str, candidates: Iterable[str]) -> list[str]:
    """Return up to three names that are similar to a misspelt one, or begin like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a misspelt name

    names = list(candidates)
    matches = get_close_matches(name, names, n=3)
    if len(name) >= _ABBREVIATION:
        matches = matches or [candidate for candidate in names if candidate.startswith(name)][:3]
    return matches


def duration(text: str, longest: float = 30 * 86_400) -> float:
    """Return the seconds of a duration: `30s`, `10m`, `2h`, `1d`, or a plain number of seconds.

    longest: seconds. Raises ArgumentTypeError.
    """
    try:
        seconds = parse_fractional_duration(text)
    except ValueError:
        seconds = float("nan")
    if seconds != seconds:  # noqa: PLR0124 - NaN
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration: expected a value like 30s, 10m or 2h")
    if not 0 < seconds <= longest:
        raise argparse.ArgumentTypeError(
            f"'{text}' is out of range: expected more than 0s and at most {longest / 86_400:g}d"
        )
    return seconds


def whole_number(smallest: int, largest: int) -> Callable[[str], int]:
    """Return a type of arguments: whole numbers in a range."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.removeprefix("-").isdigit()):
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number")
        if not smallest <= int(text[:18]) <= largest:
            raise argparse.ArgumentTypeError(f"'{text}' is out of range: expected {smallest} to {largest}")
        return int(text)

    return parse


def url_base(text: str) -> str:
    """Return the beginning of an http or https address, to which a name is added.

    It ends with `/`, or with the `#` or `=` that it already ends with. Raises ArgumentTypeError.
    """
    if len(text) > _MAX_URL_BASE:
        raise argparse.ArgumentTypeError(
            f"an address of {len(text)} characters is too long: write at most {_MAX_URL_BASE}"
        )
    if not re.fullmatch(r"https?://[A-Za-z0-9\[][!-~]*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no http or https address in ASCII without spaces: "
            "write it like https://docs.example/checks/"
        )
    return text if text.endswith(("/", "#", "=")) else f"{text}/"


def address(text: str) -> tuple[str, int]:
    """Return host and port of an address to listen on, as `127.0.0.1:9434`. Raises ArgumentTypeError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT: write it like 127.0.0.1:9434")
    host = host.strip("[]")
    if not host:
        raise argparse.ArgumentTypeError(
            f"'{text}' has no host: write 127.0.0.1:{port}, or 0.0.0.0:{port} for all addresses"
        )
    return host, int(port)
