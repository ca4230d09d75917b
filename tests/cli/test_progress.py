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
        (90.0, "reading: 1 min 30 s left"),
        (12.4, "reading: 12 s left"),
        (1.0, "reading: 1 s left"),
        (0.4, "reading: almost done"),
        (-5.0, "reading: almost done"),
    ],
)
def test_the_time_left_is_shown(left: float, line: str) -> None:
    assert progress_text("reading", left) == line


def test_progress_is_shown_on_a_terminal_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("reading", 30.0, lambda: 0.0):
        pass
    line = "reading: 30 s left"
    assert terminal.getvalue() == f"\r{line}\r{' ' * len(line)}\r"


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_nothing_is_shown_without_a_terminal_or_a_duration(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO() if seconds else Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("reading", seconds):
        pass
    assert stream.getvalue() == ""
