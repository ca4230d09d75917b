"""A page of styled lines on a terminal: in colour where that is wanted and possible, else plain."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.cli.streams import print_output

# Style by meaning → how rich writes it.
_STYLES = {
    "fatal": "bold red",
    "suspect": "bold yellow",
    "warning": "yellow",
    "ok": "green",
    "dim": "dim",
    "strong": "bold",
}

_FIELD = 14
_NARROWEST, _WIDEST, _ENDLESS = 40, 120, 1_000_000


class StyledText(Struct, frozen=True):
    """Some words of one style, empty for none."""

    text: str
    style: str = ""


class StyledLine(Struct, frozen=True):
    """A line: some words, then a text that is wrapped to the page beside them."""

    head: tuple[StyledText, ...] = ()
    text: str = ""
    style: str = ""


def field_line(name: str, text: str) -> StyledLine:
    """A line that gives something a name."""
    return StyledLine((StyledText(f"{name:<{_FIELD}}", "dim"),), text)


def lines_to_object(lines: Iterable[StyledLine]) -> dict[str, object]:
    """A page for machines: what it is of, its title, its text, and its facts, of a name perhaps several."""
    first, *rest = (line for line in lines if line.head or line.text)
    facts: dict[str, list[str]] = {}
    for line in rest:
        if line.head:
            facts.setdefault(line.head[0].text.strip().replace(" ", "_"), []).append(line.text)
    return {
        "of": first.head[0].text if first.head else "",
        "title": first.text,
        "text": [line.text for line in rest if not line.head],
        "facts": facts,
    }


def terminal_width() -> int:
    """Columns to write on: the terminal's, 80 where there is none."""
    return max(_NARROWEST, min(shutil.get_terminal_size((80, 24)).columns, _WIDEST))


def wrap_lines(lines: Iterable[StyledLine], columns: int) -> list[list[StyledText]]:
    """Lines cut to so many columns; what follows a first line is indented to where its text began."""
    result: list[list[StyledText]] = []
    for line in lines:
        indent = sum(len(words.text) for words in line.head)
        pieces = textwrap.wrap(printable(line.text), max(20, columns - indent), break_on_hyphens=False) or [
            ""
        ]
        result.append([*line.head, StyledText(pieces[0], line.style)])
        result.extend([StyledText(" " * indent), StyledText(piece, line.style)] for piece in pieces[1:])
    return result


def printable(text: str) -> str:
    """Text without what a terminal would obey: machines repeat what processes and people call themselves."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def print_lines(lines: Sequence[StyledLine]) -> None:
    """Print a page. Its first line stays whole where no terminal shows it: `head -1` then says all of it."""
    whole = 0 if sys.stdout and sys.stdout.isatty() else 1
    rows = [*wrap_lines(lines[:whole], _ENDLESS), *wrap_lines(lines[whole:], terminal_width())]
    if not _in_colour() or not _show_rich(rows):
        print_output("\n".join("".join(words.text for words in row).rstrip() for row in rows))


def _in_colour() -> bool:
    return (
        bool(sys.stdout and sys.stdout.isatty())
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def _show_rich(rows: Iterable[Sequence[StyledText]]) -> bool:
    """Print in colour; False where rich is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra, and slow to import
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return False
    console = Console(highlight=False, soft_wrap=True)
    # Captured, as rich has an exit code of its own for a pipe that nobody reads.
    with console.capture() as captured:
        for row in rows:
            console.print(Text.assemble(*((words.text, _STYLES.get(words.style, "")) for words in row)))
    print_output(captured.get(), end="")
    return True
