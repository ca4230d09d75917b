from __future__ import annotations

import io
import sys

import pytest

from nodeguard.cli.progress import progress, progress_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("left", "line"),
    [
        (90.0, "looking: 1 min 30 s left"),
        (12.4, "looking: 12 s left"),
        (1.0, "looking: 1 s left"),
        (0.4, "looking: almost done"),
        (-5.0, "looking: almost done"),
    ],
)
def test_the_time_left_is_shown(left: float, line: str) -> None:
    assert progress_text("looking", left) == line


def test_a_terminal_sees_it_and_keeps_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("looking", 30.0, lambda: 0.0):
        pass
    line = "looking: 30 s left"
    assert terminal.getvalue() == f"\r{line}\r{' ' * len(line)}\r"


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_nothing_is_shown_without_a_terminal_or_a_duration(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO() if seconds else Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("looking", seconds):
        pass
    assert stream.getvalue() == ""
