from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.cli import streams
from nodeguard.cli.render.terminal import StyledLine, StyledText, format_lines, terminal_width, wrap_lines
from nodeguard.cli.streams import print_output

HEAD = (StyledText("fine      ", "ok"),)


def rows(line: StyledLine, columns: int = 40) -> list[str]:
    return ["".join(words.text for words in row) for row in wrap_lines([line], columns)]


def test_wrapped_text_is_indented_to_its_start() -> None:
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


def test_an_empty_line_stays_empty() -> None:
    assert rows(StyledLine()) == [""]


def test_a_command_is_wrapped_so_that_a_shell_joins_it() -> None:
    command = "scontrol update NodeName=gpu-3 State=DRAIN Reason='nodeguard: gpu-ecc'"
    assert rows(StyledLine((StyledText("  how       "),), command, is_command=True), 60) == [
        "  how       scontrol update NodeName=gpu-3 State=DRAIN \\",
        "            Reason='nodeguard: gpu-ecc'",
    ]


def test_a_word_of_a_command_is_never_broken() -> None:
    word = "Reason='nodeguard: the link is trained again and again'"
    assert rows(StyledLine(text=word, is_command=True)) == [word]
    assert rows(StyledLine(text=f"x {word}", is_command=True)) == ["x \\", word]


def test_names_are_not_broken_at_hyphens() -> None:
    assert rows(StyledLine(text="a" * 30 + " nvidia-fabricmanager"))[1] == "nvidia-fabricmanager"


def test_a_narrow_terminal_still_has_room_for_text() -> None:
    assert rows(StyledLine((StyledText("x" * 38),), "one two three four"), 40) == [
        "x" * 38 + "one two three four"
    ]


@given(st.text(), st.integers(40, 120))
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(text: str, columns: int) -> None:
    printed = rows(StyledLine(HEAD, text), columns)
    assert all(len(row) <= columns for row in printed)
    remaining = [letter for row in printed for letter in row if not letter.isspace()]
    view = [letter if letter.isprintable() else "?" for letter in text if not letter.isspace()]
    assert remaining == [*"fine", *view]


@given(st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "L"])))
def test_control_characters_are_replaced(text: str) -> None:
    assert all(row.isprintable() for row in rows(StyledLine(HEAD, text)))


def test_a_process_cannot_write_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_output(format_lines([StyledLine(HEAD, "task \x1b[2J\x1b]0;owned\x07\x9b1m blocked\non a disk")]))
    assert capsys.readouterr().out == "fine      task ?[2J?]0;owned??1m blocked on a disk\n"


def test_plain_lines_end_without_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    print_output(format_lines([StyledLine(HEAD), StyledLine(text="x"), StyledLine()]))
    assert capsys.readouterr().out == "fine\nx\n\n"


@pytest.mark.parametrize(("columns", "wide"), [("80", 80), ("10", 40), ("160", 160)])
def test_the_width_is_that_of_the_terminal(columns: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == wide


def test_text_stays_readable_on_a_wide_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    print_output(format_lines([StyledLine(), StyledLine(text="word " * 60)]))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    assert rows(StyledLine(text=f"{'x' * 36} 2 min 20 s ago"))[1] == "2 min 20 s ago"


@pytest.mark.parametrize(
    ("color", "environment", "is_colored"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"CLICOLOR_FORCE": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color_is_by_option_then_environment_then_terminal(
    color: str,
    environment: dict[str, str],
    is_colored: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(streams, "_color", color)
    print_output(format_lines([StyledLine((StyledText("OK", "ok"),), " node-1")]))
    expected = "\x1b[32mOK\x1b[0m node-1\n" if is_colored else "OK node-1\n"
    assert capsys.readouterr().out == expected


def test_a_first_line_stays_whole_unless_a_terminal_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = [StyledLine(text="word " * 20), StyledLine(text="word " * 20)]
    print_output(format_lines(lines))
    assert [len(row) for row in capsys.readouterr().out.splitlines()] == [99, 39, 39, 19]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(streams, "_color", "never")
    print_output(format_lines(lines))
    assert [len(row) for row in capsys.readouterr().out.splitlines()] == [39, 39, 19] * 2
