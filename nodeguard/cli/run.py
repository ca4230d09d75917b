"""The commands of this machine: from a name to its module, and the help that lists them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import import_module

from nodeguard import __version__
from nodeguard.cli.commands import COMMANDS, GROUPS
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, UNKNOWN, UsageError, did_you_mean

NAMES = tuple(command.name for command in COMMANDS)

HELP = frozenset({"--help", "-h", "help"})


def run_command(words: Sequence[str]) -> int:
    """Run a command of this machine; returns its exit code. Raises UserError."""
    name = words[0] if words else "--help"
    if name in HELP:
        if name == "help" and len(words) > 1:
            return run_command([*words[1:], "--help"])
        print_output(_help())
        return OK if words else UNKNOWN
    if name in {"--version", "-V"}:
        print_output(f"nodeguard {__version__}")
        return OK
    if name not in NAMES:
        hint = did_you_mean(name, NAMES)
        raise UsageError(f"command '{name}' not found: {hint}see nodeguard --help")
    command = import_module(f"nodeguard.cli.commands.{name}")
    options = command.build_parser().parse_args(words[1:])
    options.command_line = shlex.join(["nodeguard", *words])
    code: int = command.run(options)
    return code


def _help() -> str:
    lines = ["usage: nodeguard COMMAND [OPTION]…", ""]
    lines += ["Detect unhealthy GPU nodes, explain each fault, and keep work away from them.", ""]
    return "\n".join([*lines, command_list()])


def command_list() -> str:
    """Return the commands by group, and the exit codes."""
    width = max(map(len, NAMES))
    lines = []
    for group in GROUPS:
        lines.append(f"{group}:")
        lines += [f"  {item.name:<{width}}  {item.summary}" for item in COMMANDS if item.group == group]
        lines.append("")
    lines += [
        "Run nodeguard COMMAND --help for the options of a command. Documentation: docs/ in the source tree.",
        "Exit codes: 0 ok, 1 warning or suspect, 2 fatal, 3 usage error or health unknown, 130 interrupted.",
    ]
    return "\n".join(lines)
