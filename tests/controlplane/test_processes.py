"""The processes and files of a cluster end with its test."""

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
from tests.controlplane.processes import SupervisedProcesses
from tests.kubelet.machine import missing_for_pods
from tests.paths import ROOT
from tests.signals import INTERRUPTIBLE
from tests.waiting import PATIENCE

# A test that starts a cluster, writes its processes to a file, and never ends.
ENDLESS = """
import json, os, signal
from pathlib import Path
from tests.controlplane.cluster import API, cluster

def test_endless():
    with cluster(API) as running:
        path = Path({path!r})
        part = path.with_suffix(".part")
        part.write_text(json.dumps([str(running.processes.directory), running.processes.ids()]))
        part.rename(path)
        signal.pause()
"""


def alive(process: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(done: Any) -> bool:
    end = time.monotonic() + PATIENCE
    while not (result := done()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(result)


@pytest.mark.usefixtures("new_cluster")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_cluster_ends_with_its_pytest(end: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "processes.json"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_endless.py").write_text(ENDLESS.format(path=str(path)))
    command = [*INTERRUPTIBLE, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as inner,
    ):
        try:
            assert wait_for(lambda: path.exists() or inner.poll() is not None)
            directory, processes = json.loads(path.read_text())
            assert len(processes) == 3
            assert all(alive(process) for process in processes)
        finally:
            inner.send_signal(end)
            try:
                inner.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                inner.kill()
                raise
    assert wait_for(lambda: not any(alive(process) for process in processes))
    assert wait_for(lambda: not Path(directory).exists())


def test_the_processes_end_with_a_killed_supervisor() -> None:
    with SupervisedProcesses("nodeguard-processes-") as processes:
        process = processes.start("sleeper", "sleep", "3600")
        supervisor = next(other for other in processes.ids() if other != process)
        os.kill(supervisor, signal.SIGKILL)
        assert wait_for(lambda: not alive(process))
        for file in processes.directory.iterdir():
            file.unlink()
        processes.directory.rmdir()


def test_the_error_of_a_component_that_cannot_start_has_its_log(new_cluster: NewCluster) -> None:
    error = r"(?s)kube-apiserver ended with code 1:.*unknown flag: --no-such-flag"
    with pytest.raises(ClusterError, match=error), new_cluster(API, {"kube-apiserver": ["--no-such-flag"]}):
        pass


@pytest.mark.kubelet
def test_cgroups_of_a_directory_end_with_its_processes() -> None:
    assert missing_for_pods() == []
    version_1 = Path("/sys/fs/cgroup/memory")
    top = version_1 if version_1.is_dir() else version_1.parent
    with SupervisedProcesses("nodeguard-processes-") as processes:
        cgroup = top / f"{processes.directory.name}-node"
        (cgroup / "pod").mkdir(parents=True)
        members = cgroup / "pod/cgroup.procs"
        process = processes.start("sleeper", "sh", "-c", f"echo $$ > {members} && exec sleep 3600")
        assert wait_for(lambda: str(process) in members.read_text().split())
    assert not cgroup.exists()
