"""The parsers of all commands as data, for completion scripts and the man page."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import NamedTuple

from nodeguard.cli.commands import COMMANDS
from nodeguard.cli.usage import ArgumentParser


class Option(NamedTuple):
    """An option, or an argument with no flags. value: its name, empty for a switch."""

    flags: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    about: str


class ParsedCommand(NamedTuple):
    """A command or a part of one. words: such as `get nodes`. examples: of a command; a part has none."""

    words: tuple[str, ...]
    summary: str
    description: str
    epilog: str
    examples: tuple[str, ...]
    options: tuple[Option, ...]
    parts: tuple[ParsedCommand, ...]


def read_parsers() -> list[ParsedCommand]:
    """Return all commands. Imports each of them."""
    parsed = []
    for command in COMMANDS:
        parser = import_module(f"nodeguard.cli.commands.{command.name}").build_parser()
        parsed.append(_read((command.name,), command.summary, parser))
    return parsed


def _read(words: tuple[str, ...], summary: str, parser: ArgumentParser) -> ParsedCommand:
    options, parts = [], []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            summaries = {item.dest: item.help or "" for item in action._choices_actions}  # noqa: SLF001
            for name, part in action.choices.items():
                if isinstance(part, ArgumentParser) and part.prog.endswith(f" {name}"):
                    about = next((text for key, text in summaries.items() if key.split()[0] == name), "")
                    parts.append(_read((*words, name), about, part))
            continue
        options.append(
            Option(
                tuple(action.option_strings),
                "" if action.nargs == 0 else str(action.metavar or action.dest),
                tuple(map(str, action.choices or ())),
                (action.help or "").replace("%%", "%"),
            )
        )
    return ParsedCommand(
        words,
        summary,
        parser.description or "",
        parser.epilog or "",
        parser.examples if len(words) == 1 else (),
        tuple(options),
        tuple(parts),
    )
