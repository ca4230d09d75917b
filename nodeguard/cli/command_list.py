"""The list of commands: each module in nodeguard/cli/commands is one, with SUMMARY and GROUP constants.

The constants are read from the source text: `nodeguard --help` imports no command.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from nodeguard.cli import commands

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
