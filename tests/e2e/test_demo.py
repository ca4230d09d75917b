"""What `make demo` shows, and that nothing is left of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.processes import until
from tests.waiting import PROMPTLY

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


# The process, and the file with its output.
Showing = tuple[subprocess.Popen[bytes], Path]


@contextmanager
def showing(directory: Path) -> Iterator[Showing]:
    """The demo, which has a directory for what it writes for a while, and where it says what it shows."""
    (directory / "for-a-while").mkdir()
    environment = {**os.environ, "TMPDIR": str(directory / "for-a-while"), "COLUMNS": "80"}
    said = directory / "said"
    with (
        said.open("wb") as shown,
        subprocess.Popen(
            [sys.executable, str(DEMO)], stdout=shown, stderr=shown, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            yield process, said
        finally:
            process.terminate()
            process.wait(PROMPTLY)


def left(directory: Path) -> list[str]:
    """What is left of it: files, and processes."""
    places = [(path, _place(path)) for path in Path("/proc").glob("[0-9]*")]
    found = [path.name for path, place in places if place.startswith(f"{directory}/for-a-while/")]
    return found + os.listdir(directory / "for-a-while")


def _place(process: Path) -> str:
    """Where a process runs; empty where it is gone."""
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def whole(directory: Path) -> Iterator[Showing]:
    """A demo that is shown to its end, beside the one that is interrupted: most of its minute is waiting."""
    with showing(directory) as shown:
        yield shown


@pytest.mark.usefixtures("whole")
def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    with showing(tmp_path) as (process, log):
        until(lambda: "gpu-6  nic-module-error" in log.read_text(), log)
        assert len(left(tmp_path)) >= 10
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PROMPTLY) == 130
    assert "Traceback" not in log.read_text()
    assert left(tmp_path) == []


def test_it_shows_faults_a_budget_and_a_recovery_and_ends(whole: Showing, directory: Path) -> None:
    process, log = whole
    until(lambda: process.poll() is not None, log)
    assert process.returncode == 0, log.read_text()
    said = log.read_text()
    events = re.findall(r"^ +\d+ s  (gpu-\d)  (?:.*) -> (.*)$", said, re.MULTILINE)
    done = [what for _, what in events]
    assert events[0] == ("gpu-6", "advice: keep new gang work off it")
    assert events[1] == ("gpu-3", "advice: keep all new work off it")
    assert done.count("advice: keep all new work off it") == 3
    assert (
        sum(
            what.startswith("NO advice: budget of check gpu-row-remap-failed used up: 2 of 2 ")
            for what in done
        )
        == 4
    )
    assert done.count("over; it may take work again") == 3
    assert "\n$ nodeguard status\nFATAL  8 nodes: 1 fatal.\n" in said
    assert "\nFATAL  gpu-3: advice: keep all new work off it: gpu-gsp-failure.\n" in said
    assert "Traceback" not in said
    assert left(directory) == []
