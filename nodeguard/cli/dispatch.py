"""From the words of a command line to a command, and from its errors to one line and an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from nodeguard import __version__
from nodeguard.cli.streams import UnwritableError, discard_output, prepare_streams, print_error, print_output
from nodeguard.cli.usage import OK, UNKNOWN, UsageError, did_you_mean


def dispatch(commands: Mapping[str, str], given: Sequence[str]) -> int:
    """Run a command; returns its exit code. commands: what each is for, by name. given: the command line."""
    name = f"nodeguard {given[0]}" if given and given[0] in commands else "nodeguard"
    try:
        prepare_streams()
        return _run(commands, given)
    except (UsageError, UnwritableError) as error:
        print_error(f"{name}: {error}")
        if isinstance(error, UnwritableError):
            discard_output()
    except BrokenPipeError:
        discard_output()  # The reader of a pipe left, as `head` does, and wants no more.
    return UNKNOWN


def _run(commands: Mapping[str, str], given: Sequence[str]) -> int:
    name = given[0] if given else "--help"
    if name in {"--help", "-h", "help"}:
        if name == "help" and len(given) > 1:
            return _run(commands, [given[1], "--help"])
        print_output(_help(commands))
        return OK if given else UNKNOWN
    if name == "--version":
        print_output(f"nodeguard {__version__}")
        return OK
    if name not in commands:
        raise UsageError(f"'{name}' is no command: {did_you_mean(name, commands)}see nodeguard --help")
    code: int = import_module(f"nodeguard.cli.commands.{name}").run(given[1:])
    return code


def _help(commands: Mapping[str, str]) -> str:
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {about}" for name, about in commands.items()]
    return "\n".join(
        [
            "usage: nodeguard COMMAND [OPTION]…",
            "",
            "Finds what is sick on a GPU node, says why, and what to do.",
            "",
            *lines,
            "",
            "nodeguard COMMAND --help says more. Exit codes: 0 ok, 1 warning or suspect, 2 fatal,",
            "3 usage error or nothing could be judged.",
        ]
    )
