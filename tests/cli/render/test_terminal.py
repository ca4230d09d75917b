from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.cli.render import terminal as page
from nodeguard.cli.render.terminal import StyledLine, StyledText, print_lines, terminal_width, wrap_lines

HEAD = (StyledText("fine      ", "ok"),)


def rows(line: StyledLine, columns: int = 40) -> list[str]:
    return ["".join(words.text for words in row) for row in wrap_lines([line], columns)]


def test_what_follows_stands_under_the_beginning() -> None:
    text = "the driver met no deadline in a call of GPU 0000:3b:00 and rests"
    assert rows(StyledLine(HEAD, text)) == [
        "fine      the driver met no deadline in",
        "          a call of GPU 0000:3b:00 and",
        "          rests",
    ]


def test_styles_stay_with_their_words() -> None:
    [first, second] = wrap_lines([StyledLine(HEAD, "word " * 10, "strong")], 40)
    assert first[0] == HEAD[0]
    assert [words.style for words in (*first[1:], *second)] == ["strong", "", "strong"]


def test_an_empty_line_is_one() -> None:
    assert rows(StyledLine()) == [""]


def test_names_are_not_broken_at_hyphens() -> None:
    assert rows(StyledLine(text="a" * 30 + " nvidia-fabricmanager"))[1] == "nvidia-fabricmanager"


def test_a_narrow_page_still_has_room_for_text() -> None:
    assert rows(StyledLine((StyledText("x" * 38),), "one two three four"), 40) == [
        "x" * 38 + "one two three four"
    ]


@given(st.text(), st.integers(40, 120))
def test_no_line_is_wider_than_the_page_and_no_word_is_lost(text: str, columns: int) -> None:
    said = rows(StyledLine(HEAD, text), columns)
    assert all(len(row) <= columns for row in said)
    kept = [letter for row in said for letter in row if not letter.isspace()]
    told = [letter if letter.isprintable() else "?" for letter in text if not letter.isspace()]
    assert kept == [*"fine", *told]


@given(st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "L"])))
def test_a_terminal_is_given_nothing_to_obey(text: str) -> None:
    assert all(row.isprintable() for row in rows(StyledLine(HEAD, text)))


def test_a_process_cannot_colour_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([StyledLine(HEAD, "task \x1b[2J\x1b]0;owned\x07\x9b1m blocked\non a disk")])
    assert capsys.readouterr().out == "fine      task ?[2J?]0;owned??1m blocked on a disk\n"


def test_plain_lines_end_without_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([StyledLine(HEAD), StyledLine(text="x"), StyledLine()])
    assert capsys.readouterr().out == "fine\nx\n\n"


@pytest.mark.parametrize(("columns", "wide"), [("80", 80), ("10", 40), ("500", 120)])
def test_a_page_is_neither_too_narrow_nor_too_wide(
    columns: str, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == wide


def test_without_rich_a_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "_in_colour", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    print_lines([StyledLine(HEAD, "x")])
    assert capsys.readouterr().out == "fine      x\n"


def test_a_first_line_stays_whole_unless_a_terminal_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = [StyledLine(text="word " * 20), StyledLine(text="word " * 20)]
    print_lines(lines)
    assert [len(row) for row in capsys.readouterr().out.splitlines()] == [99, 39, 39, 19]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(page, "_in_colour", lambda: False)
    print_lines(lines)
    assert [len(row) for row in capsys.readouterr().out.splitlines()] == [39, 39, 19] * 2
