"""`make demo`: its output, and that it leaves no files and processes behind."""

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
from tests.signals import INTERRUPTIBLE
from tests.waiting import PROMPTLY

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


# The process, and the file with its output.
Demo = tuple[subprocess.Popen[bytes], Path]


@contextmanager
def running_demo(directory: Path) -> Iterator[Demo]:
    """Run the demo, with its temporary files and its output below a directory."""
    (directory / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(directory / "temporary"), "COLUMNS": "80"}
    output = directory / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [*INTERRUPTIBLE, sys.executable, str(DEMO)],
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process, output
        finally:
            process.terminate()
            process.wait(PROMPTLY)


def leftovers(directory: Path) -> list[str]:
    """Return the files and the process ids that a demo has left behind."""
    temporary = directory / "temporary"
    processes = [
        path.name
        for path in Path("/proc").glob("[0-9]*")
        if _working_directory(path).startswith(f"{temporary}/")
    ]
    return processes + os.listdir(temporary)


def _working_directory(process: Path) -> str:
    """Return the working directory of a process; empty if it has ended."""
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def complete_demo(directory: Path) -> Iterator[Demo]:
    """Run a whole demo beside the interrupted one: most of its minute is waiting. Its processes listen already, so
    that the other one gets other ports.
    """
    with running_demo(directory) as (process, log):
        until(lambda: "gpu-6: the kernel logs a hot cable" in log.read_text(), log)
        yield process, log


@pytest.mark.usefixtures("complete_demo")
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_demo(tmp_path) as (process, log):
        until(lambda: "gpu-6  nic-module-error" in log.read_text(), log)
        assert len(leftovers(tmp_path)) >= 10
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PROMPTLY) == 130
    assert "Traceback" not in log.read_text()
    assert leftovers(tmp_path) == []


def test_the_demo_shows_faults_a_budget_and_a_recovery(complete_demo: Demo, directory: Path) -> None:
    process, log = complete_demo
    until(lambda: process.poll() is not None, log)
    assert process.returncode == 0, log.read_text()
    output = log.read_text()
    events = re.findall(r"^ +\d+ s  (gpu-\d)  (?:.*) -> (.*)$", output, re.MULTILINE)
    outcomes = [outcome for _, outcome in events]
    assert events[0] == ("gpu-6", "advice: keep new gang work off it")
    assert events[1] == ("gpu-3", "advice: keep all new work off it")
    assert outcomes.count("advice: keep all new work off it") == 3
    assert (
        sum(
            outcome.startswith(
                "NO advice: budget of check gpu-row-remap-failed has reached its limit: 2 of 2 "
            )
            for outcome in outcomes
        )
        == 2
    )
    assert outcomes.count("over; it may take work again") == 3
    assert "\n$ nodeguard status\nFATAL  8 nodes: 1 fatal.\n" in output
    assert "\nFATAL  gpu-3: advice: keep all new work off it: gpu-gsp-failure.\n" in output
    assert "Traceback" not in output
    assert leftovers(directory) == []
