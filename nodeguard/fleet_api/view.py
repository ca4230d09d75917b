"""A view: what a text or a page shows of one thing, without columns, colors and markup. Pure.

`fleet_api/text` and `cli/render` make views. `cli/render/terminal.py` renders them to a terminal,
`aggregator/pages/sections.py` to HTML. Texts of a view may come from outside: each renderer replaces control
characters, and markup, in all of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct


class Subject(Struct, frozen=True):
    """A thing that has a view of its own."""

    kind: Literal["node", "incident", "domain", "check", "nodes"]
    """`check` for a fault class, too. `nodes`: those in a WorkState, which is the name."""
    name: str

    @property
    def command(self) -> str:
        """Return the command that prints its view, quoted for the shell: a report has names, too."""
        verbs = {"check": "explain", "nodes": "get nodes --work"}
        return f"nodeguard {verbs.get(self.kind, f'describe {self.kind}')} {shlex.quote(self.name)}"


class Field(Struct, frozen=True):
    """A property with its name."""

    name: str
    """Empty for a value that continues the one above."""
    value: str
    style: str = ""
    """Of the value: a health, `dim`, or empty."""
    name_style: str = "dim"
    subjects: tuple[Subject, ...] = ()
    """What the value names, if it lists only subjects: their commands, or their names."""
    about: Subject | None = None
    """What the value is about, for a link; None for none."""
    is_command: bool = False
    """Whether the value is a command of the shell."""
    is_urgent: bool = False
    """Whether an operator has to see it before all that is not."""


class Note(Struct, frozen=True):
    """A text without a name."""

    text: str
    style: str = ""
    is_urgent: bool = False
    """As of a field."""
    about: Subject | None = None
    """What the text is about, for a link; None for none."""


Row = Field | Note


class Heading(Struct, frozen=True):
    """A label, and what it is about."""

    label: str
    style: str
    """Of the label: a health, or `strong`."""
    text: str
    text_style: str = "strong"
    separator: str = ""
    """Between the label and the text; empty for a label that is a badge, such as a health."""
    about: Subject | None = None
    """What the text is about, for a link; None for none."""

    @property
    def is_badge(self) -> bool:
        """Return whether the label is a badge."""
        return not self.separator

    def __str__(self) -> str:
        """Return it as one text."""
        return f"{self.label}{self.separator or ' '}{self.text}" if self.text else self.label


class Section(Struct, frozen=True):
    """Rows that belong together, below a heading or without one."""

    heading: Heading | None
    rows: tuple[Row, ...] = ()
    form: Literal["properties", "article", "entry", "item", "list"] = "properties"
    """article: notes about the heading, then its properties. entry: one of several things alike; item: the
    same, short. list: a row for each thing."""


class View(Struct, frozen=True):
    """The sections about one thing: the heading of the first is that of the view."""

    sections: tuple[Section, ...]
    alert: Heading | None = None
    """What makes all else less important."""

    @property
    def title(self) -> str:
        """Return the view in one line, for the title of a window."""
        return str(self.alert or self.sections[0].heading or "").rstrip(".")


def badge_heading(label: str, style: str, text: str, about: Subject | None = None) -> Heading:
    """Return a heading with a badge, such as a health."""
    return Heading(label.upper(), style, text, about=about)


def fields_view(rows: Iterable[Row]) -> View:
    """Return a view of some rows only."""
    return View((Section(None, tuple(rows)),))


def see(*subjects: Subject) -> Field:
    """Return the field that names the commands for more."""
    return Field("see", ", ".join(subject.command for subject in subjects), "dim", subjects=subjects)


def commands(lines: tuple[str, ...]) -> tuple[Field, ...]:
    """Return the fields with the commands of the shell that carry out an action."""
    return tuple(
        Field("" if index else "how", command, is_command=True) for index, command in enumerate(lines)
    )
