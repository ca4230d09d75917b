"""Files, processes and mounts that a test leaves behind are detected."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import MARK, checkout_entries, mounts, processes, system_files
from tests.paths import ROOT


def test_files_and_directories_of_nodeguard_are_detected(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert system_files([tmp_path]) == frozenset()
    socket = tmp_path / "nodeguard" / "agent.sock"
    socket.parent.mkdir()
    socket.touch()
    assert system_files([tmp_path]) == {str(socket.parent), str(socket)}


def test_a_cache_in_the_checkout_is_detected(tmp_path: Path) -> None:
    (tmp_path / ".pytest_cache").mkdir()
    assert checkout_entries(tmp_path) == frozenset()
    (tmp_path / ".kube").mkdir()
    assert checkout_entries(tmp_path) == {".kube"}


def test_an_orphan_process_is_detected() -> None:
    child = ["sh", "-c", "sleep 60 >/dev/null & echo $!"]
    orphan = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    try:
        assert f"{orphan}: sleep 60" in processes(os.environ[MARK])
        assert not [command for command in processes("another run") if command.startswith(orphan)]
    finally:
        os.kill(int(orphan), signal.SIGKILL)


def test_mount_points_below_a_directory_are_detected(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    below, beside = tmp_path / "with space", tmp_path.with_name("beside")
    escaped = str(below).replace(" ", r"\040")
    table.write_text(
        f"36 35 0:1 / {escaped} rw - fuse nodeguard-test rw\n37 35 0:2 / {beside} rw - tmpfs tmpfs rw\n"
    )
    assert mounts([tmp_path], str(table)) == [str(below)]


LEAVING = {
    "entry of the checkout": "import pathlib; pathlib.Path(__file__).with_name('left').touch()",
    "file": "import tempfile; tempfile.mkdtemp()",
    "process": "import subprocess; subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAVING)
def test_a_run_with_leftovers_fails(kind: str, tmp_path: Path) -> None:
    root = ROOT
    conftest = (root / "tests" / "conftest.py").read_text().replace("_ENDING = 30.0", "_ENDING = 0.0")
    conftest = conftest.replace("checkout_entries()", f"checkout_entries(Path({str(tmp_path)!r}))")
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_leaving.py").write_text(f"def test_leaving() -> None:\n    {LEAVING[kind]}\n")
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", str(tmp_path)]
    command.append(f"--basetemp={tmp_path}/inner")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, "1 passed, 1 error" in done.stdout) == (1, True), done.stdout
    for process in re.findall(r"(\d+): sleep 60", done.stdout)[:1]:
        os.kill(int(process), signal.SIGKILL)
