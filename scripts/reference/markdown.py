"""Markdown of the reference pages: titles and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NOTE = "<!-- Written by `make docs`; do not edit. -->"

Lines = Iterator[str]


def page(title: str, *lines: str) -> str:
    """Return a page with a title and the note that it is generated."""
    return "\n".join((f"# {title}", "", NOTE, "", *lines)).rstrip() + "\n"


def table(header: Iterable[str], rows: Iterable[Iterable[str]], *, has_html: bool = False) -> Lines:
    """Yield the lines of a Markdown table, with an empty line after it. has_html: cells are escaped."""
    columns = list(header)
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(row if has_html else map(cell, row))} |"
    yield ""


def cell(text: str) -> str:
    """Return text for a cell of a table: on one line, without HTML and column separators."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def code(text: str) -> str:
    """Return text as code; empty for no text."""
    return f"`{text}`" if text else ""


def escaped(text: str) -> str:
    """Return plain text as Markdown that shows it unchanged, on one line."""
    return " ".join(re.sub(r"([*_|])", r"\\\1", text).replace("<", "&lt;").split())
