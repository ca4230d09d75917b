"""nodeguard man: the man page, generated from the parsers of all commands."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from nodeguard import __version__
from nodeguard.agent.control import PATH
from nodeguard.aggregator.api.requests import SOCKET_PATH
from nodeguard.cli.parser_tree import Option, ParsedCommand, read_parsers
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser

EXIT_CODES = (
    ("0", "Success; no problem was found."),
    ("1", "A check found a warning or a suspect component; a policy file has warnings."),
    ("2", "A check found a fatal fault."),
    ("3", "The command line or a file is invalid, the health is unknown, or no answer came."),
    ("130", "The command was interrupted."),
)
ENVIRONMENT = (
    ("NODEGUARD_AGGREGATOR_SOCKET", "Socket of the aggregator, where --socket is not set."),
    ("NODEGUARD_AGENT_SOCKET", "Socket of the agent, where --socket is not set."),
    ("NODEGUARD_CHECKS", "Directories with checks of the site, separated by colons."),
    ("NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE", "Turn colors off or on, where --color is not set."),
)
OPTIONS = (
    ("-h, --help", "Show the help of the command, with its examples."),
    ("--color auto|always|never", "When to use colors; auto: on a terminal."),
)
_COMMON = frozenset({"--help", "--color"})
FILES = (
    (SOCKET_PATH, "Socket of the aggregator."),
    (PATH, "Socket of the agent."),
    ("/etc/nodeguard/agent.yaml", "Settings of the agent, in the packages and in the chart."),
    ("/var/lib/nodeguard", "State of the agent, and history of the aggregator."),
)
EXAMPLES = (
    ("nodeguard check", "Is this machine healthy? The exit code is 0, 1, 2 or 3."),
    ("nodeguard status", "The health of the fleet, marks and budgets, on the machine of the aggregator."),
    ("nodeguard describe node gpu-7", "Why a node is marked, and what its marks wait for."),
    ("nodeguard explain gpu-lost", "What a check means, and what to do."),
    ("nodeguard get gpus -n gpu-7", "The GPUs of a node, with the worst finding on each."),
)


def man_page(version: str, commands: Sequence[ParsedCommand]) -> str:
    """Return the page in the format of man(7)."""
    return "\n".join(_page(version, commands)) + "\n"


def _page(version: str, commands: Sequence[ParsedCommand]) -> Iterator[str]:
    yield f'.TH NODEGUARD 1 "" "nodeguard {version}" "User Commands"'
    yield ".SH NAME"
    yield "nodeguard \\- health daemon for GPU nodes"
    yield ".SH SYNOPSIS"
    yield ".B nodeguard"
    yield "COMMAND [OPTION]..."
    yield ".SH DESCRIPTION"
    yield "nodeguard detects unhealthy GPU nodes, explains each fault in one sentence, and keeps work away"
    yield "from them without taking down the fleet."
    yield ".SH OPTIONS"
    yield "Every command has these:"
    yield from _items(OPTIONS)
    yield ".SH COMMANDS"
    for command in commands:
        yield from _command(command)
    yield ".SH EXIT STATUS"
    yield from _items(EXIT_CODES)
    yield ".SH ENVIRONMENT"
    yield from _items(ENVIRONMENT)
    yield ".SH FILES"
    yield from _items(FILES)
    yield ".SH EXAMPLES"
    yield from _items(EXAMPLES)
    yield ".SH SEE ALSO"
    yield _escaped("kubectl(1), nvidia-smi(1), scontrol(1), systemctl(1)")


def _command(command: ParsedCommand) -> Iterator[str]:
    yield f'.SS "nodeguard {" ".join(command.words)}"'
    yield _escaped(command.description)
    for option in command.options:
        if set(option.flags) & _COMMON:
            continue
        yield ".TP"
        yield f".B {_escaped(_usage(option))}"
        yield _escaped(option.about) or "."
    if command.epilog:
        yield ".PP"
        yield _escaped(command.epilog)
    if command.examples:
        yield from (".PP", "Examples:", ".PP", ".nf", ".RS")
        yield from map(_escaped, command.examples)
        yield from (".RE", ".fi")
    for part in command.parts:
        yield from _command(part)


def _usage(option: Option) -> str:
    flags, value = ", ".join(option.flags), option.value
    if option.choices and value.islower():
        # The name of the attribute, where the values have no name of their own.
        value = "|".join(option.choices)
    return f"{flags} {value}".strip()


def _items(items: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, text in items:
        yield from (".TP", f".B {_escaped(name)}", _escaped(text))


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def run(_: Namespace) -> int:
    """Run the command; returns its exit code."""
    print_output(man_page(__version__, read_parsers()), end="")
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    return ArgumentParser(
        prog="nodeguard man",
        description="Print the man page, in the format of man(7).",
        examples=("nodeguard man | man -l -",),
    )
