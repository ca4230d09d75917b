"""Terminal output with ANSI colors as an SVG image. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from msgspec import Struct

# Pixels of a character cell and of the border, and the size of the font: that of a common monospace font.
_WIDTH, _HEIGHT, _FONT, _BORDER = 8.4, 19, 14, 14

_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# A dark terminal, which is readable on a light and on a dark page: contrasts of 5.9 and more (WCAG 2.2: 4.5).
_BACKGROUND, _FOREGROUND = "#1b1f24", "#dde3e9"

# Class and color by ANSI parameter. Bold red and bold yellow of a terminal are brighter.
_CLASSES = {
    "1": ("b", "font-weight:700"),
    "2": ("d", "fill:#9aa5b1"),
    "31": ("r", "fill:#ff8078"),
    "32": ("g", "fill:#5fd075"),
    "33": ("y", "fill:#e5b84b"),
}

# What these terminals show: text, and sequences that select a rendition.
_RENDITION = re.compile(r"\x1b\[([0-9;]*)m")


class _Run(Struct, frozen=True):
    """Characters with one rendition. column: of the first. codes: ANSI parameters."""

    column: int
    text: str
    codes: frozenset[str]


class UnknownSequenceError(ValueError):
    """The output has a control sequence or a rendition that this module does not draw."""


def terminal_svg(title: str, output: str, columns: int) -> str:
    """Return an image of terminal output. title: its text alternative. columns: width of the terminal.

    Each run of characters has its exact width, so that tables are aligned in any font. Raises
    UnknownSequenceError.
    """
    rows = [list(_runs(line)) for line in output.replace("\r\n", "\n").rstrip("\n").split("\n")]
    width = round(columns * _WIDTH + 2 * _BORDER)
    height = len(rows) * _HEIGHT + 2 * _BORDER
    styles = "".join(f".{name}{{{style}}}" for name, style in _CLASSES.values())
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>text{{font:{_FONT}px {_FONTS};fill:{_FOREGROUND};white-space:pre}}{styles}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{_BACKGROUND}"/>',
            *(_row(number, runs) for number, runs in enumerate(rows) if runs),
            "</svg>\n",
        )
    )


def _runs(line: str) -> Iterator[_Run]:
    """Yield the runs of a line, without spaces at its end."""
    codes: frozenset[str] = frozenset()
    column = 0
    for number, part in enumerate(_RENDITION.split(line)):
        if number % 2:
            codes = _next_codes(codes, part)
            continue
        if any(not character.isprintable() for character in part):
            raise UnknownSequenceError(f"{part!r} is neither text nor a rendition")
        if part.strip():
            yield _Run(column, part.rstrip(), codes)
        column += len(part)


def _next_codes(codes: frozenset[str], parameters: str) -> frozenset[str]:
    for code in (parameters or "0").split(";"):
        if code == "0":
            codes = frozenset()
        elif code in _CLASSES:
            codes |= {code}
        else:
            raise UnknownSequenceError(f"rendition {code}")
    return codes


def _row(number: int, runs: list[_Run]) -> str:
    baseline = _BORDER + number * _HEIGHT + 14
    return f'<text y="{baseline}">{"".join(map(_span, runs))}</text>'


def _span(run: _Run) -> str:
    text = run.text.lstrip()
    column = run.column + len(run.text) - len(text)
    names = " ".join(_CLASSES[code][0] for code in sorted(run.codes))
    style = f' class="{names}"' if names else ""
    return (
        f'<tspan x="{_BORDER + column * _WIDTH:.1f}" textLength="{len(text) * _WIDTH:.1f}"{style}>'
        f"{escape(text, quote=False)}</tspan>"
    )
