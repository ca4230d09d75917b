"""Views as HTML, with headings, lists, tables and links. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from nodeguard.aggregator.pages.html import (
    EMPTY,
    Html,
    check_path,
    command_element,
    domain_path,
    element,
    incident_path,
    join,
    link,
    node_path,
    nodes_path,
)
from nodeguard.fleet_api.view import Field, Heading, Note, Row, Section, Subject, View

_PATHS: dict[str, Callable[[str], str]] = {
    "node": node_path,
    "incident": incident_path,
    "domain": domain_path,
    "check": check_path,
    "nodes": nodes_path,
}


def sections(view: View) -> Html:
    """Return a view. The first heading is that of the page."""
    first, *others = view.sections
    rest = join(element("section", _section(section, "h2"), class_=_card(section)) for section in others)
    return join((element("section", _section(first, "h1"), class_="head"), rest))


def _card(section: Section) -> str | bool:
    """Return the class of a section about one thing with a health or a mark; False for another one."""
    title = section.heading
    return f"card {title.style}" if title is not None and title.is_badge else False


def _section(section: Section, tag: str) -> Html:
    title, rows = heading(section.heading, tag), section.rows
    if section.form == "article":
        paragraphs = (element("p", row.text) for row in rows if isinstance(row, Note))
        rows = tuple(row for row in rows if isinstance(row, Field))
        return join((title, *paragraphs, fields(rows)))
    return join((title, fields(rows)))


def heading(title: Heading | None, tag: str) -> Html:
    """Return a headline: its badge, then its text."""
    if title is None:
        return EMPTY
    if title.is_badge:
        text = link(_PATHS[title.about.kind](title.about.name), title.text) if title.about else title.text
        return element(tag, badge(title.label, title.style), " ", text)
    return element(tag, str(title))


def badge(text: str, style: str) -> Html:
    """Return a word on the color of a style, such as a health."""
    return element("b", text, class_=f"badge {style}")


def fields(rows: Iterable[Row]) -> Html:
    """Return fields as a list of names and values; notes as paragraphs."""
    listed = join(_rows(rows))
    return element("dl", listed) if listed else EMPTY


def _rows(rows: Iterable[Row]) -> Iterator[Html]:
    before = ""
    for row in rows:
        name, style, value, is_command = "", row.style, _value(row), False
        if isinstance(row, Field):
            name, style, is_command = row.name, row.style or row.name_style, row.is_command
        # A name that repeats is printed once.
        term = element("dt", "" if name == before else name, class_=style or False)
        yield element(
            "div",
            term,
            element("dd", value, class_=row.style or False),
            # A command below another one stays in the column of the first.
            class_="wide" if not (name or is_command) else False,
        )
        before = name


def _value(row: Row) -> str:
    text = row.value if isinstance(row, Field) else row.text
    if row.about is not None:
        return link(_PATHS[row.about.kind](row.about.name), text)
    if not isinstance(row, Field):
        return text
    if row.subjects:
        links = (_subject(subject, row.value) for subject in row.subjects)
        return join(part for index, item in enumerate(links) for part in ((", ", item) if index else (item,)))
    return command_element(text, class_="command") if row.is_command else text


def _subject(subject: Subject, value: str) -> Html:
    """Return the command for a subject, or its name where the value has names, as a link to its page."""
    is_command = subject.command in value
    text = command_element(subject.command) if is_command else subject.name
    return link(_PATHS[subject.kind](subject.name), text)


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


def pager(shown: slice, total: int, path: Callable[[int], str]) -> Html:
    """Return which rows are shown, and links to the page before and after; empty if all rows are shown."""
    first, last = shown.start + 1, min(shown.stop, total)
    if first == 1 and last == total:
        return EMPTY
    page = shown.stop // (shown.stop - shown.start)
    before = link(path(page - 1), "previous", rel="prev") if page > 1 else EMPTY
    after = link(path(page + 1), "next", rel="next") if last < total else EMPTY
    rows = f"{first} to {last} of {total}" if first <= last else f"no more than {total}"
    return element("nav", before, after, f" {rows}", class_="choices", aria_label="Pages of the list")
