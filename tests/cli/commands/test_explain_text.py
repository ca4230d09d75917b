"""nodeguard explain, for errors of programs, logs and lines of output."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.main import main
from tests.cli.commands.test_explain import printed


def test_the_error_of_a_program_names_its_cause_and_its_checks(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "NCCL", "timeout")
    assert text.startswith("Message of a program - a rank waited for the others until its time limit")
    assert "caused by the program or the machine: the text does not decide it" in text
    assert "look first Run nodeguard check on each node of the job." in text
    assert "checks gpu-lost (fatal): GPU lost" in text
    assert main(["explain", "CUDA error: device-side assert triggered", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"] == "program"


def test_a_line_of_the_kernel_log_without_a_meaning_may_be_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed = "Out of memory: Killed process 71 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
    assert "out-of-memory (warning)" in printed(capsys, killed)


def test_a_text_of_several_errors_lists_those_after_the_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = """\
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
NVRM: Xid (PCI:0000:9d:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE)
NVRM: Xid (PCI:0000:9d:00): 45, pid=1, name=python, Ch 00000008
NVRM: Xid (PCI:0000:9d:00): 45, pid=2, name=python, Ch 00000009
usb 1-3: USB disconnect, device number 4
NVRM: Xid (PCI:0000:9d:00): 99999999999999999999999999, pid=2, name=python, Ch 00000009
RuntimeError: CUDA error: out of memory
"""
    monkeypatch.setattr("sys.stdin", io.StringIO(log.partition("\n")[2]))
    assert main(["explain", "-"]) == 0
    first, _, also = capsys.readouterr().out.partition("Also in this text")
    assert first.startswith("Xid 48 - ")
    assert [line.split(" - ")[0] for line in also.splitlines() if " - " in line] == [
        "  Xid 45",
        "  Message of a program",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO(log.splitlines()[1]))
    assert main(["explain", "-"]) == 0
    assert "Also" not in capsys.readouterr().out


@pytest.mark.parametrize("errors_first", [False, True])
def test_a_long_log_is_explained_by_its_errors(
    errors_first: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [f"[02:{n // 60 % 60:02}:{n % 60:02}] step {n} loss {n / 7:.4f} lr 2.9e-04" for n in range(3_000)]
    # Two lines that differ in the code of an error are two errors.
    errors = [
        "Cuda failure 719",
        "failed (exitcode: -9) local_rank: 0",
        "failed (exitcode: -6) local_rank: 0",
    ]
    text = "\n".join([*errors, *steps] if errors_first else [*steps, *errors])
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["explain", "-"]) == 0
    first, _, also = capsys.readouterr().out.partition("Also in this text")
    assert "the GPU stopped a kernel" in first
    assert "was killed" in also
    assert "crashed" in also


def test_the_end_of_a_long_line_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Xid 79 " + "-" * 1_000_000 + " CUDA error: out of memory"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["explain", "-"]) == 0
    assert "too little free memory" in capsys.readouterr().out


def test_an_empty_standard_input_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    assert main(["explain", "-"]) == 3
    assert "standard input is empty" in capsys.readouterr().err


def test_every_message_of_a_program_has_a_title_that_fits_a_line() -> None:
    catalogue, _ = load_catalogue()
    titles = [f"Message of a program - {message.title}" for message in catalogue.program_messages]
    assert [title for title in titles if len(title) > 80] == []


def test_a_long_text_is_not_repeated_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("z" * 200_000, "xid " + "7" * 200_000, "a " * 500_000):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert main(["explain", "-"]) == 3
        assert len(capsys.readouterr().err) < 600


@pytest.mark.parametrize(
    "line",
    [
        "nodeguard: GPU lost: GPU 5 (0000:c3:00, serial 1650522100005, module 6). Reboot the node.",
        "nodeguard: GPU lost:",
        "FATAL  gpu-7 should take no work. GPU lost: GPU 5 (0000:c3:00). Reboot the node.",
        "FATAL  GPU lost - GPU 5 (0000:c3:00, serial 1650522100005, module 6)",
        "nodeguard: gpu-lost gpu/0000:c3:00 GPU 0000:c3:00 is lost: gpu-count",
    ],
)
def test_output_of_nodeguard_is_explained_by_its_check(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert printed(capsys, line).startswith("gpu-lost - GPU lost")


def test_a_file_is_read_from_standard_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "a log"
    log.write_text("CUDA error: out of memory")
    assert main(["explain", str(log)]) == 3
    assert f"is a file: write nodeguard explain - < '{log}'" in capsys.readouterr().err


def test_a_line_of_nodeguard_for_a_terminal_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        '2026-11-28T19:19:17Z WARNING the aggregator does not acknowledge endpoint=a error="it answered 404"'
    )
    assert "error it answered 404 endpoint a" in printed(capsys, line)


def test_a_word_that_begins_with_xid_is_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    line = "XidCriticalError: Xid=79 on Device=GPU-5c8f0005, the device will go unhealthy."
    assert printed(capsys, line).startswith("Message of a program - the device plugin withdrew a GPU")


def test_an_xid_without_the_prefix_of_the_driver_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    line = "Xid (PCI:0000:c3:00): 94, pid=7194, Contained: SM (0x1). RST: No, D-RST: No"
    assert printed(capsys, line).startswith("Xid 94 - ")


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[32m[    1.000000] \x1b[0m\x1b[33mNVRM\x1b[0m: Xid (PCI:0000:c3:00): 94, Contained",
        "[    1.000000] NVRM: \x1b[01;31m\x1b[KXid\x1b[m\x1b[K (PCI:0000:c3:00): 94, Contained",
    ],
)
def test_a_line_in_color_is_explained(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert printed(capsys, line).startswith("Xid 94 - ")
