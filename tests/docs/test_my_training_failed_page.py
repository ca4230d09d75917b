"""The transcripts of docs/tasks/my-training-failed.md are what the commands print, and the page is short."""

from __future__ import annotations

import io
import re
import shlex

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main
from tests.docs.pages import Block, blocks, text
from tests.docs.ran import record_command
from tests.paths import ROOT

PAGE = "docs/tasks/my-training-failed.md"
# The recording of the machine on which a section runs `nodeguard check`.
MACHINES = {"The program": "gpu-programs-die-once", "One slow rank": "gpu-slowed", "A hang": "port-flaps"}


def test_each_transcript_is_what_its_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    transcripts = blocks(PAGE)
    assert len(transcripts) == 5
    for block in transcripts:
        command, *shown = block.lines
        printed = output(command.removeprefix("$ "), block, capsys)
        # An ellipsis is any number of lines.
        pattern = "".join(".*" if line == "…" else f"{re.escape(line)}\n" for line in shown)
        assert re.fullmatch(pattern, printed, re.DOTALL), (block.section, printed)


def test_a_log_shows_its_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = "nodeguard explain - < train.log"
    assert f"`{command}`" in text(PAGE)
    log = "step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(log))
    assert main(["explain", "-"]) == 0
    record_command(command)
    assert "caused by     the program" in capsys.readouterr().out


def output(command: str, block: Block, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command prints on the machine of its section."""
    machine = MACHINES.get(block.section)
    main([*shlex.split(command)[1:], *(["--from", str(bundle_path(machine))] if machine else [])])
    record_command(command)
    return capsys.readouterr().out


def test_the_page_is_read_in_three_minutes() -> None:
    assert len(text(PAGE).split()) <= 600
