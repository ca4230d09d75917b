"""From a command line to a command, and from its errors to one line and an exit code.

Each module in nodeguard/cli/commands is a command, with SUMMARY and GROUP constants. They are read from the
source text: `nodeguard --help` imports no command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from nodeguard import __version__
from nodeguard.cli import commands
from nodeguard.cli.streams import UnwritableError, discard_output, prepare_streams, print_error, print_output
from nodeguard.cli.usage import OK, UNKNOWN, UsageError, did_you_mean

GROUPS = ("Node", "Fleet", "Checks and policy", "Tools")

_CONSTANT = re.compile(r'^(SUMMARY|GROUP) = "(.*)"$', re.MULTILINE)


class Command(NamedTuple):
    """A command: its name, one line of help, and the group under which the help lists it."""

    name: str
    summary: str
    group: str


def command_names() -> list[str]:
    """Return the names of all commands."""
    files = os.listdir(os.path.dirname(commands.__file__))
    return sorted(file.removesuffix(".py") for file in files if file.endswith(".py") and file[0] != "_")


def read_commands() -> list[Command]:
    """Return all commands, by name."""
    folder = os.path.dirname(commands.__file__)
    listed = []
    for name in command_names():
        with open(f"{folder}/{name}.py", encoding="utf-8") as file:
            constants = dict(_CONSTANT.findall(file.read()))
        listed.append(Command(name, constants["SUMMARY"], constants["GROUP"]))
    return listed


def dispatch(words: Sequence[str]) -> int:
    """Run a command; returns its exit code. words: the command line."""
    name = f"nodeguard {words[0]}" if words and words[0] in command_names() else "nodeguard"
    try:
        prepare_streams()
        return _run(words)
    except (UsageError, UnwritableError) as error:
        print_error("\n".join(f"{name}: {line}" for line in str(error).splitlines() or [""]))
        if isinstance(error, UnwritableError):
            discard_output()
    except BrokenPipeError:
        discard_output()  # The reader of the pipe has left, as `head` does.
    return UNKNOWN


def _run(words: Sequence[str]) -> int:
    name = words[0] if words else "--help"
    if name in {"--help", "-h", "help"}:
        if name == "help" and len(words) > 1:
            return _run([*words[1:], "--help"])
        print_output(_help())
        return OK if words else UNKNOWN
    if name in {"--version", "-V"}:
        print_output(f"nodeguard {__version__}")
        return OK
    names = command_names()
    if name not in names:
        hint = did_you_mean(name, names)
        raise UsageError(f"command '{name}' not found: {hint}see nodeguard --help")
    code: int = import_module(f"nodeguard.cli.commands.{name}").run(words[1:])
    return code


def _help() -> str:
    commands = read_commands()
    width = max(len(command.name) for command in commands)
    lines = ["usage: nodeguard COMMAND [OPTION]…", ""]
    lines += ["Detect unhealthy GPU nodes, explain each fault, and keep work away from them.", ""]
    for group in GROUPS:
        lines.append(f"{group}:")
        lines += [f"  {item.name:<{width}}  {item.summary}" for item in commands if item.group == group]
        lines.append("")
    lines += [
        "Run nodeguard COMMAND --help for the options of a command. Documentation: docs/ in the source tree.",
        "Exit codes: 0 ok, 1 warning or suspect, 2 fatal, 3 usage error or health unknown, 130 interrupted.",
    ]
    return "\n".join(lines)
