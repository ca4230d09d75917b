"""From a command line to a command, and from its errors to one line and an exit code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import import_module

from nodeguard import __version__
from nodeguard.cli.commands import COMMANDS, GROUPS
from nodeguard.cli.streams import UnwritableError, discard_output, prepare_streams, print_error, print_output
from nodeguard.cli.usage import OK, UNKNOWN, UsageError, did_you_mean
from nodeguard.model.failure import UserError

_NAMES = tuple(command.name for command in COMMANDS)

HELP = frozenset({"--help", "-h", "help"})


def dispatch(words: Sequence[str], program: str = "nodeguard") -> int:
    """Run a command; returns its exit code. words: the command line. program: `kubectl nodeguard` for the
    plug-in.
    """
    name = f"{program} {words[0]}" if words and words[0] in _NAMES else program
    try:
        prepare_streams()
        if program == "nodeguard":
            return run_command(words)
        from nodeguard.cli.plugin.run import run_plugin  # noqa: PLC0415 - imports this module

        return run_plugin(words)
    except UserError as error:
        lines = str(error).splitlines() or [""]
        # An indented line continues the error above.
        print_error("\n".join(line if line.startswith("  ") else f"{name}: {line}" for line in lines))
        if isinstance(error, UnwritableError):
            discard_output()
    except BrokenPipeError:
        discard_output()  # The reader of the pipe has left, as `head` does.
    return UNKNOWN


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
    if name not in _NAMES:
        hint = did_you_mean(name, _NAMES)
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
    width = max(map(len, _NAMES))
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
