"""Nothing of a cluster outlives its test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import API, ClusterError, NewCluster
from tests.controlplane.kept import Kept
from tests.paths import ROOT
from tests.waiting import PATIENCE

# A test that starts a cluster, says so, and never ends.
ENDLESS = """
import json, os, signal
from pathlib import Path
from tests.controlplane.cluster import API, cluster

def test_endless():
    with cluster(API) as made:
        said = Path({said!r})
        beside = said.with_suffix(".part")
        beside.write_text(json.dumps([str(made.kept.directory), made.kept.processes()]))
        beside.rename(said)
        signal.pause()
"""


def alive(process: int) -> bool:
    """Whether a process runs: who waits to be buried by another does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def waited(done: Any) -> bool:
    end = time.monotonic() + PATIENCE
    while not (said := done()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(said)


@pytest.mark.usefixtures("new_cluster")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_cluster_ends_with_its_pytest(end: signal.Signals, tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_endless.py").write_text(ENDLESS.format(said=str(said)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as inner,
    ):
        try:
            assert waited(lambda: said.exists() or inner.poll() is not None)
            directory, processes = json.loads(said.read_text())
            assert len(processes) == 3
            assert all(alive(process) for process in processes)
        finally:
            inner.send_signal(end)
    assert waited(lambda: not any(alive(process) for process in processes))
    assert waited(lambda: not Path(directory).exists())


def test_the_processes_die_with_a_keeper_that_is_killed() -> None:
    with Kept("nodeguard-kept-") as kept:
        process = kept.start("sleeper", "sleep", "3600")
        keeper = next(other for other in kept.processes() if other != process)
        os.kill(keeper, signal.SIGKILL)
        assert waited(lambda: not alive(process))
        for left in kept.directory.iterdir():
            left.unlink()
        kept.directory.rmdir()


def test_a_component_that_cannot_start_says_why(new_cluster: NewCluster) -> None:
    why = r"(?s)kube-apiserver ended with code 1:.*unknown flag: --no-such-flag"
    with pytest.raises(ClusterError, match=why), new_cluster(API, {"kube-apiserver": ["--no-such-flag"]}):
        pass
