"""Styled lines on a terminal: in color where it is wanted, and wrapped to the width of the terminal."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence

from nodeguard.cli.streams import in_color, is_terminal, print_output
from nodeguard.fleet_api.text.lines import StyledLine, StyledText, format_age, printable
from nodeguard.model.instant import rfc3339

# The lines come with what prints them.
__all__ = [
    "StyledLine",
    "StyledText",
    "field_line",
    "format_age",
    "format_lines",
    "format_time",
    "print_lines",
    "printable",
    "terminal_width",
    "wrap_lines",
]

# Style to ANSI code.
_STYLES = {
    "fatal": "1;31",
    "suspect": "1;33",
    "warning": "33",
    "ok": "32",
    "dim": "2",
    "strong": "1",
}

_FIELD = 14

# Columns: text is readable up to _PROSE of them; tables use all that the terminal has.
_NARROWEST, _PROSE, _UNLIMITED = 40, 120, 1_000_000

# A number and its unit stay on one line.
_QUANTITY = re.compile(
    r"(?<=\d) (?=(?:s|ms|min|h|d|B|KiB|MiB|GiB|TiB|°C|W|%|ago|nodes?|GPUs?|marks?|checks?)\b)"
)
_NO_BREAK = "\u00a0"

# A word of a command of the shell, with its quotes.
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_CONTINUED = " \\"


def field_line(name: str, text: str) -> StyledLine:
    """Return a line with the name and the value of a field."""
    return StyledLine((StyledText(f"{name:<{_FIELD}}", "dim"),), text)


def terminal_width() -> int:
    """Return the columns of the terminal, 80 without one."""
    return max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns)


def wrap_lines(lines: Iterable[StyledLine], columns: int) -> list[list[StyledText]]:
    """Return the rows of some lines; a wrapped text is indented to where it began."""
    result: list[list[StyledText]] = []
    for line in lines:
        indent = sum(len(part.text) for part in line.head)
        text = _QUANTITY.sub(_NO_BREAK, printable(line.text))
        if line.is_command:
            pieces = _wrap_command(printable(line.text), columns - indent)
        else:
            pieces = textwrap.wrap(text, max(20, columns - indent), break_on_hyphens=False) or [""]
            pieces = [piece.replace(_NO_BREAK, " ") for piece in pieces]
        result.append([*line.head, StyledText(pieces[0], line.style)])
        result.extend([StyledText(" " * indent), StyledText(piece, line.style)] for piece in pieces[1:])
    return result


def _wrap_command(command: str, columns: int) -> list[str]:
    """Return a command in lines that a shell joins: each but the last ends with a backslash."""
    lines = [""]
    for word in _SHELL_WORD.findall(command):
        if lines[-1] and len(lines[-1]) + len(word) + 1 > columns - len(_CONTINUED):
            lines[-1] += _CONTINUED
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def print_lines(lines: Sequence[StyledLine]) -> None:
    """Print lines. The first is not wrapped without a terminal: `head -1` then prints all of it."""
    print_output(format_lines(lines))


def format_lines(lines: Sequence[StyledLine]) -> str:
    """Return the text of lines, as print_lines prints it."""
    whole = 0 if is_terminal() else 1
    columns = min(terminal_width(), _PROSE)
    rows = [*wrap_lines(lines[:whole], _UNLIMITED), *wrap_lines(lines[whole:], columns)]
    color = in_color()
    return "\n".join(_colored(row) if color else _plain(row) for row in rows)


def _plain(row: Iterable[StyledText]) -> str:
    return "".join(part.text for part in row).rstrip()


def _colored(row: Iterable[StyledText]) -> str:
    return "".join(
        f"\x1b[{_STYLES[part.style]}m{part.text}\x1b[0m"
        if part.style in _STYLES and part.text.strip()
        else part.text
        for part in row
    ).rstrip()


def format_time(wall: float) -> str:
    """Return a time as tables show it: `2026-11-21 09:12:33 UTC`. wall: seconds since the epoch."""
    return rfc3339(wall).replace("T", " ").replace("Z", " UTC")
