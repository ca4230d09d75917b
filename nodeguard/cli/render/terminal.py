"""Views and tables on a terminal: as lines, in color where it is wanted, wrapped to the terminal's width."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from nodeguard.cli.program import as_typed
from nodeguard.cli.streams import in_color, is_terminal
from nodeguard.fleet_api.view import Field, Heading, Row, Section, View
from nodeguard.model.instant import rfc3339
from nodeguard.model.printable import printable

# Style to ANSI code.
_STYLES = {
    "fatal": "1;31",
    "suspect": "1;33",
    "warning": "33",
    "ok": "32",
    "dim": "2",
    "strong": "1",
}

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


class StyledText(Struct, frozen=True):
    """A text of one style, empty for none."""

    text: str
    style: str = ""


class StyledLine(Struct, frozen=True):
    """A line: a head that is never wrapped, then a text that is wrapped beside it.

    is_command: whether the text is a command of the shell, which is wrapped so that a shell joins it again.
    """

    head: tuple[StyledText, ...] = ()
    text: str = ""
    style: str = ""
    is_command: bool = False


class Layout(NamedTuple):
    """The columns of a view. value: column of the values, unless a name is longer. headed, plain: indentation
    of fields below a heading, and of others. badge: columns of the badge of an entry.
    """

    value: int = 14
    headed: int = 2
    plain: int = 2
    badge: int = 7


FLEET = Layout()
CHECK = Layout(value=12, plain=0)
# The layout of what is about one thing only.
PLAIN = Layout(headed=0, plain=0)

# Columns between a badge and its text.
_GAP = "  "


def view_lines(view: View, layout: Layout = FLEET) -> list[StyledLine]:
    """Return the lines of a view, its sections apart."""
    lines = [] if view.alert is None else [_heading(view.alert)]
    previous: Section | None = None
    for section in view.sections:
        is_next_item = previous is not None and previous.form == section.form == "item"
        if previous is not None and not is_next_item:
            lines.append(StyledLine())
        lines += _section(section, layout)
        previous = section
    return lines


def _section(section: Section, layout: Layout) -> Iterator[StyledLine]:
    if section.form in {"entry", "item"}:
        yield from _entry(section, layout)
        return
    if section.heading is not None:
        yield _heading(section.heading)
    indent = layout.plain if section.heading is None else layout.headed
    names = [len(row.name) for row in section.rows if isinstance(row, Field)]
    width = max(layout.value - indent, max(names, default=0) + 1)
    before: type[Row] | None = None
    for row in section.rows:
        if section.form == "article" and before is not type(row):
            yield StyledLine()
        before = type(row)
        if isinstance(row, Field):
            head = StyledText(f"{'':{indent}}{row.name:<{width}}", row.name_style)
            yield StyledLine((head,), row.value, row.style, row.is_command)
        else:
            head = StyledText(" " * indent if section.form == "list" else "")
            yield StyledLine((head,), row.text, row.style)


def _entry(section: Section, layout: Layout) -> Iterator[StyledLine]:
    """Yield the lines of an entry: all texts are beside its badge."""
    if section.heading is not None:
        yield _heading(section.heading, layout.badge)
    indent = StyledText(" " * (layout.badge + len(_GAP)))
    for row in section.rows:
        if isinstance(row, Field):
            yield StyledLine((indent, StyledText(f"{row.name}: ", row.name_style)), row.value, row.style)
        else:
            yield StyledLine((indent,), row.text, row.style)


def _heading(heading: Heading, badge: int = 0) -> StyledLine:
    """Return the line of a heading. badge: least columns of its label."""
    label = f"{heading.label}{' ' * (badge - len(heading.label))}"
    head = StyledText(label, heading.style), StyledText(heading.separator or _GAP)
    return StyledLine(head, heading.text, heading.text_style)


def terminal_width() -> int:
    """Return the columns of the terminal, 80 without one."""
    return max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns)


def wrap_lines(lines: Iterable[StyledLine], columns: int) -> list[list[StyledText]]:
    """Return the rows of some lines; a wrapped text is indented to where it began."""
    result: list[list[StyledText]] = []
    for line in lines:
        head = [StyledText(printable(part.text), part.style) for part in line.head]
        indent = sum(len(part.text) for part in head)
        text = printable(as_typed(line.text))
        if line.is_command:
            pieces = _wrap_command(text, columns - indent)
        else:
            text = _QUANTITY.sub(_NO_BREAK, text)
            pieces = textwrap.wrap(text, max(20, columns - indent), break_on_hyphens=False) or [""]
            pieces = [piece.replace(_NO_BREAK, " ") for piece in pieces]
        result.append([*head, StyledText(pieces[0], line.style)])
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


def format_view(view: View, layout: Layout = FLEET) -> str:
    """Return the text of a view, as format_lines does."""
    return format_lines(view_lines(view, layout))


def format_lines(lines: Sequence[StyledLine]) -> str:
    """Return the text of lines. The first is not wrapped without a terminal: `head -1` then has all of it."""
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
