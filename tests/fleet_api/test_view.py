"""Views, and what both renderers do with texts from outside."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser
from typing import Literal, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.aggregator.pages.sections import sections
from nodeguard.cli import streams
from nodeguard.cli.render.terminal import CHECK, FLEET, PLAIN, Layout, format_view
from nodeguard.fleet_api.view import Field, Heading, Note, Section, Subject, View, badge_heading, see

KINDS = get_args(get_type_hints(Subject)["kind"])
FORMS = get_args(get_type_hints(Section)["form"])
STYLES = st.sampled_from(["", "dim", "strong", "ok", "warning", "suspect", "fatal", "unknown"])
OUTSIDE = st.text() | st.sampled_from(
    [
        "<script>alert(1)</script>",
        "\" onclick='x' ",
        "</dd></dl>&lt;",
        "\x1b[2J\x1b]0;owned\x07",
        "a\r\nb\u202ec\x9b1m",
    ]
)
SUBJECTS = st.builds(Subject, st.sampled_from(KINDS), OUTSIDE)
FIELDS = st.builds(Field, OUTSIDE, OUTSIDE, STYLES, STYLES, is_command=st.booleans())
ROWS = FIELDS | st.builds(see, SUBJECTS, SUBJECTS) | st.builds(Note, OUTSIDE, STYLES)
HEADINGS = st.builds(Heading, OUTSIDE, STYLES, OUTSIDE, STYLES, separator=st.sampled_from(["", " - ", ": "]))
SECTIONS = st.builds(
    Section, st.none() | HEADINGS, st.lists(ROWS, max_size=4).map(tuple), st.sampled_from(FORMS)
)
VIEWS = st.builds(View, st.lists(SECTIONS, min_size=1, max_size=3).map(tuple), st.none() | HEADINGS)


class Markup(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@given(VIEWS)
def test_no_markup_or_control_character_of_an_outside_text_is_on_a_page(view: View) -> None:
    page = Markup(sections(view))
    assert page.tags <= {"section", "h1", "h2", "b", "p", "dl", "div", "dt", "dd", "code", "span", "a"}
    assert page.attributes <= {"class", "href"}
    assert page.open == []
    assert page.text.isprintable()


@given(VIEWS, st.sampled_from([FLEET, CHECK, PLAIN, Layout(badge=10)]))
def test_no_control_character_of_an_outside_text_is_on_a_terminal(view: View, layout: Layout) -> None:
    for color in ("always", "never"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "_color", color)
            lines = format_view(view, layout).split("\n")
        own = re.compile(r"\x1b\[(?:0|2|1|32|33|1;31|1;33)m") if color == "always" else re.compile(r"(?!)")
        assert all(own.sub("", line).isprintable() for line in lines)


def test_the_title_is_that_of_the_alert_or_of_the_first_heading() -> None:
    section = Section(badge_heading("fatal", "fatal", "node-1: lost."))
    assert View((section,)).title == "FATAL node-1: lost"
    assert View((section,), badge_heading("frozen", "fatal", "no new mark.")).title == "FROZEN no new mark"
    assert View((Section(Heading("gpu-lost", "strong", "", separator=" - ")),)).title == "gpu-lost"
    assert View((Section(None),)).title == ""


def test_entries_are_apart_and_items_are_not() -> None:
    sections_of = [
        Section(Heading("passed", "ok", "one: fine", "")),
        Section(Heading("failed", "fatal", "two: absent", ""), (Field("fix", "add it"),), "item"),
        Section(Heading("passed", "ok", "three: fine", ""), (), "item"),
        Section(badge_heading("fatal", "fatal", "four"), (Note("is lost"),), "entry"),
    ]
    assert format_view(View(tuple(sections_of))).split("\n") == [
        "passed  one: fine",
        "",
        "failed   two: absent",
        "         fix: add it",
        "passed   three: fine",
        "",
        "FATAL    four",
        "         is lost",
    ]


def test_a_name_that_is_longer_than_its_column_moves_the_values_of_its_section() -> None:
    votes = Section(
        None, (Field("gpu-h100-0016", "lost"), Field("gpu-1", "lost"), Note("and 3 more")), "list"
    )
    expected = ["  gpu-h100-0016 lost", "  gpu-1         lost", "  and 3 more"]
    assert format_view(View((votes,))).split("\n") == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_quotes_a_name_for_the_shell(
    kind: Literal["node", "incident", "domain", "check", "nodes"],
) -> None:
    """A person copies it, and a report may name a check as it likes."""
    name = "gpu-lost;$(reboot) 'x'"
    assert shlex.split(Subject(kind, name).command)[-1] == name
    assert Subject(kind, "fabric/p0/r0").command.endswith(" fabric/p0/r0")
