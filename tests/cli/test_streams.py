"""Commands with a standard output or error that is closed, full, or of a narrow encoding."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fixtures.bundles import bundle_path
from nodeguard.cli.streams import as_document
from tests.signals import INTERRUPTIBLE

CHECK = ["check", "--from", str(bundle_path("gpu-hot"))]


def run(words: list[str], redirect: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    shell = f'exec "$@" {redirect}'
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "nodeguard.cli.main", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize("words", [CHECK, ["--help"], ["check", "--help"], ["checks"], ["--version"]])
def test_a_full_or_closed_output_is_reported_in_one_line(words: list[str]) -> None:
    for redirect, reason in ((">/dev/full", "No space left on device"), (">&-", "closed")):
        done = run(words, redirect)
        assert done.returncode == 3
        assert done.stderr.startswith("nodeguard")
        assert "standard output" in done.stderr
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_recording_with_a_failing_output_prints_no_traceback(tmp_path: Path) -> None:
    done = run(["record", str(tmp_path / "bundle")], ">/dev/full")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert "nodeguard record: standard output: No space left" in done.stderr
    assert (tmp_path / "bundle" / "bundle.yaml").exists()


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(redirect: str) -> None:
    for words in (["check", "--frob"], ["frob"], ["check", "--family", "frob"]):
        done = run(words, redirect)
        assert (done.returncode, done.stdout) == (3, "")


def test_a_log_with_bytes_that_are_no_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"loss \xff\xfe\nCUDA error: uncorrectable ECC error encountered\n")
    # As in a locale such as en_US.UTF-8: there, Python refuses such bytes in standard input.
    done = run(["explain", "-"], f"<{tmp_path}/log", PYTHONIOENCODING="utf-8:strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ECC could not correct" in done.stdout


def test_characters_outside_the_encoding_are_question_marks() -> None:
    done = run(CHECK, PYTHONIOENCODING="ascii")
    assert done.returncode in {1, 2}
    assert "?C" in done.stdout
    assert done.stderr == ""
    assert run(["--help"], PYTHONIOENCODING="ascii").returncode == 0


@pytest.mark.parametrize("words", [["--help"], ["check", "--help"], CHECK])
def test_a_pipe_without_a_reader_prints_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [sys.executable, "-m", "nodeguard.cli.main", *words], stdout=writer, stderr=subprocess.PIPE
    ) as running:
        os.close(writer)
        assert running.stderr is not None
        assert running.stderr.read() == b""


def test_an_interrupt_during_imports_prints_no_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'nodeguard.cli.usage':\n"
        f"            os.kill(os.getpid(), {int(signal.SIGINT)})\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['nodeguard', 'check']\n"
        "from nodeguard.cli.main import main\n"
        "sys.exit(main())\n"
    )
    command = [*INTERRUPTIBLE, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "nodeguard check: interrupted\n")


def test_an_agent_needs_no_standard_output() -> None:
    done = run(["agent", "--once", "--listen", "127.0.0.1:0", *CHECK[1:]], ">&-")
    assert (done.returncode == 3, "Traceback" in done.stderr) == (False, False)
    assert '"msg": "agent stopped"' in done.stderr


HOSTILE = "a\x1b[31mb\x9b2Jc\x08\u202ed"


@pytest.mark.parametrize(
    "words",
    [
        [HOSTILE],
        ["check", f"--{HOSTILE}"],
        ["check", "--family", HOSTILE],
        ["check", "--from", f"/{HOSTILE}"],
        ["check", "--checks", f"/{HOSTILE}"],
        ["explain", HOSTILE],
        ["gpus", "detach", "--duration", "1m", "--gpu", HOSTILE],
        ["gpus", "detach", "--duration", HOSTILE],
        ["clear", "gpu-lost", "node", "--by", HOSTILE, "--socket", f"/{HOSTILE}"],
        ["describe", "node", HOSTILE, "--socket", f"/{HOSTILE}"],
        ["agent", "--listen", HOSTILE],
    ],
)
def test_an_argument_brings_no_control_character_to_the_terminal(words: list[str]) -> None:
    done = run(words)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_has_no_character_that_a_terminal_interprets(output: str) -> None:
    document = {"name": HOSTILE, "unit": "µs", HOSTILE: [HOSTILE]}
    text = as_document(document, output)
    assert text.replace("\n", "").isprintable()
    assert yaml.safe_load(text) == document


def test_yaml_of_printable_text_is_written_as_it_is() -> None:
    assert as_document({"unit": "µs"}, "yaml") == "unit: µs"


def test_a_path_with_control_characters_is_shown_without_them(tmp_path: Path) -> None:
    directory = tmp_path / "a\x1b[31m\nb"
    done = run(["record", str(directory)])
    assert done.returncode == 0
    assert f"{tmp_path}/a?[31m b: recorded" in done.stdout
    assert directory.is_dir()
