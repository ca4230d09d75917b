"""Views as HTML: the same lines that the commands print, with headings, lists and links. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from nodeguard.aggregator.pages.html import (
    EMPTY,
    Html,
    check_path,
    domain_path,
    element,
    incident_path,
    join,
    link,
    node_path,
)
from nodeguard.fleet_api.text.lines import StyledLine

_COMMAND = re.compile(
    r"nodeguard (?P<kind>describe node|describe incident|describe domain|explain) (?P<name>[^\s,]+)"
)
_PATHS: dict[str, Callable[[str], str]] = {
    "describe node": node_path,
    "describe incident": incident_path,
    "describe domain": domain_path,
    "explain": check_path,
}

# The name of the fields that list commands.
_SEE = "see"


def sections(lines: Sequence[StyledLine], advice: Html = EMPTY) -> Html:
    """Return a view: each part between empty lines is a section. The first heading is that of the page.

    advice: comes after the first section.
    """
    parts: list[list[StyledLine]] = [[]]
    for line in lines:
        if line.head or line.text:
            parts[-1].append(line)
        elif parts[-1]:
            parts.append([])
    first, *others = [part for part in parts if part]
    rest = join(element("section", _section(part, "h2")) for part in others)
    return join((element("section", _section(first, "h1"), class_="head"), advice, rest))


def _section(lines: list[StyledLine], tag: str) -> Html:
    first, *rest = lines
    if not _is_heading(first):
        return fields(lines)
    return join((heading(first, tag), fields(rest)))


def _is_heading(line: StyledLine) -> bool:
    """Return whether a line begins with a colored word, as title_line makes it."""
    return len(line.head) == 2


def heading(line: StyledLine, tag: str) -> Html:
    """Return a headline: its colored word as a label, then its text."""
    word = line.head[0]
    return element(tag, badge(word.text.strip(), word.style), " ", line.text)


def badge(text: str, style: str) -> Html:
    """Return a word on the color of a style, such as a health."""
    return element("b", text, class_=f"badge {style}")


def fields(lines: Iterable[StyledLine]) -> Html:
    """Return item lines as a list of names and values; lines without a name as paragraphs."""
    rows = join(_rows(lines))
    return element("dl", rows) if rows else EMPTY


def _rows(lines: Iterable[StyledLine]) -> Iterator[Html]:
    before = ""
    for line in lines:
        name = line.head[0].text.strip() if line.head else ""
        style = line.style or (line.head[0].style if line.head else "")
        value = _linked(line.text) if name == _SEE else line.text
        if line.is_command:
            value = element("code", line.text)
        # A name that repeats is printed once.
        term = element("dt", "" if name == before else name, class_=style or False)
        yield element(
            "div",
            term,
            element("dd", value, class_=line.style or False),
            # A command below another one stays in the column of the first.
            class_="wide" if not (name or line.is_command) else False,
        )
        before = name


def _linked(text: str) -> Html:
    """Return commands as code; those that describe or explain something are links to its page."""
    parts: list[Html] = []
    for command in text.split(", "):
        match = _COMMAND.fullmatch(command)
        code = element("code", command)
        parts.append(link(_PATHS[match["kind"]](match["name"]), code) if match else code)
    return join(text for number, part in enumerate(parts) for text in ((", ", part) if number else (part,)))


def table(names: Sequence[str], rows: Iterable[Sequence[str]], class_: str = "") -> Html:
    """Return a table. On a narrow screen each cell is a line of its own, with its name in front."""
    header = element("tr", join(element("th", name, scope="col") for name in names))
    body = join(
        element(
            "tr",
            join(
                element("td", element("div", cell), data_name=name)
                for name, cell in zip(names, row, strict=True)
            ),
        )
        for row in rows
    )
    return element("table", element("thead", header), element("tbody", body), class_=class_ or False)
