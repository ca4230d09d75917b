from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.recording import Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.observation import Event
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.machines.recording import RecordingMachine
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.process_owner import GpuProcesses, LoggedProcesses, read_owner
from tests.bundle.writing import MANIFEST
from tests.model.test_control_group import DOCKER, POD, SLURM
from tests.sources.fake_machine import FakeMachine, ThisMachine
from tests.sources.machines.test_recording import Node
from tests.sources.nvml_machine import FIRST, of_gpu
from tests.sources.test_kmsg import PATTERNS, line
from tests.sources.test_processes import stat
from tests.worker.recordings import hopper

KTHREADD = f"2 (kthreadd) S 0 0 0 0 -1 2129984 {'0 ' * 43}0\n"
XID = "NVRM: Xid (PCI:0000:01:00): 31, pid={pid}, name=python3, Ch 00000008, intr 00000000."


def process(pid: int, *, uid: int = 1000, cgroup: str = POD, start: int = 90_000) -> dict[str, str]:
    """Return the files of a process. start: in hundredths of a second since boot."""
    return {
        f"/proc/{pid}/status": f"Name:\tpython3\nUmask:\t0022\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\n",
        f"/proc/{pid}/cgroup": cgroup,
        f"/proc/{pid}/task/{pid}/stat": stat(pid, "python3", start=start),
    }


def machine(*processes: dict[str, str], host: bool = True) -> FakeMachine:
    files = {"/proc/2/stat": KTHREADD} if host else {}
    for files_of_one in processes:
        files |= files_of_one
    return FakeMachine(files)


def xid(pid: int | str, at: float = 950.0) -> Event:
    return Event("gpu.xid.line", at, fields={"xid": 31, "rest": f"pid={pid}, name=python3, Ch 00000008"})


def test_owner_is_opaque_and_equal_for_equal_owners() -> None:
    there = machine(process(7), process(8, uid=1001), process(9, cgroup=SLURM), process(10, cgroup=DOCKER))
    first, other_user, slurm, docker = (read_owner(there, pid) for pid in (7, 8, 9, 10))
    assert first is not None
    assert other_user is not None
    assert slurm is not None
    assert docker is not None
    assert first.started == 900.0
    assert (first.job, first.user != other_user.user) == (other_user.job, True)
    assert len({first.job, slurm.job, docker.job}) == 3
    assert first.user == slurm.user == docker.user
    assert "1000" not in first.user


@pytest.mark.parametrize("missing", ["status", "cgroup", "task/7/stat"])
def test_process_that_cannot_be_read_has_no_owner(missing: str) -> None:
    there = machine(process(7))
    there.files[f"/proc/7/{missing}"] = ""
    assert read_owner(there, 7) is None
    there.errors[f"/proc/7/{missing}"] = 13
    assert read_owner(there, 7) is None


def test_own_process_is_read() -> None:
    owner = read_owner(ThisMachine(), os.getpid())
    assert owner is not None
    assert owner.started > 0


def test_only_files_that_do_not_block_are_read() -> None:
    there = machine(process(7))
    LoggedProcesses(there).add_owner(xid(7))
    assert {path.rpartition("/")[2] for path in there.asked} == {"stat", "status", "cgroup"}


def test_xid_has_the_owner_of_its_process() -> None:
    fields = LoggedProcesses(machine(process(7))).add_owner(xid(7)).fields
    assert (fields["pid"], str(fields["owner"]).split(":")[:2]) == (7, ["7", "900.00"])


@pytest.mark.parametrize(
    "there",
    [
        machine(),
        machine(process(7), host=False),  # a container: its numbers are others
        machine(process(7, start=96_000)),  # a later process with the number
        machine(process(7), {"/proc/2/stat": stat(2, "kthreadd")}),  # a process that only has the name
    ],
)
def test_owner_of_another_process_is_not_used(there: FakeMachine) -> None:
    assert "owner" not in LoggedProcesses(there).add_owner(xid(7)).fields


def test_xid_without_a_process_stays() -> None:
    assert LoggedProcesses(machine()).add_owner(xid("'<unknown>'")) == xid("'<unknown>'")


def test_xid_of_a_mig_instance_has_its_process() -> None:
    text = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 43, pid=7, name=python3, Ch 00000008"
    node = Node({"/proc/2/stat": KTHREADD, **process(7)}, records=(line(text, at=950.0),))
    [event] = (event for observation in KmsgSource(PATTERNS).read(node) for event in observation.events)
    assert str(event.fields["owner"]).startswith("7:900.00:")


def test_storm_reads_few_processes() -> None:
    there = machine(*(process(pid) for pid in range(100, 200)))
    processes = LoggedProcesses(there)
    for pid in range(100, 200):
        processes.add_owner(xid(pid))
    assert len(there.asked) <= 1 + 16 * 3


def test_listed_process_is_read_once() -> None:
    there = machine(process(7))
    listed = {"nvmlDeviceGetComputeRunningProcesses": [{"pid": 7}, {"pid": 99}]}
    processes = GpuProcesses()
    first = processes.describe(there, FIRST, listed)
    assert first is not None
    assert [entry.split(":")[0] for entry in first.split()] == ["7", "99"]
    asked = [path for path in there.asked if path.startswith("/proc/7/")]
    assert processes.describe(there, FIRST, listed) == first
    assert [path for path in there.asked if path.startswith("/proc/7/")] == asked


@pytest.mark.parametrize("result", [None, {"error": "NVML_ERROR_NOT_SUPPORTED"}])
def test_gpu_without_a_list_has_no_signal(result: Any) -> None:
    observation = of_gpu({} if result is None else {"nvmlDeviceGetComputeRunningProcesses": result})
    assert "gpu.process_owners" not in observation.signals


@pytest.mark.parametrize("anonymise", [False, True])
def test_recording_has_no_names_and_gives_the_same_owners(tmp_path: Path, *, anonymise: bool) -> None:
    device = {**hopper(), "nvmlDeviceGetComputeRunningProcesses_v3": [{"pid": 7}, {"pid": 8}, {"pid": 9}]}
    files = {"/proc/2/stat": KTHREADD, **process(7), **process(8), **process(9, uid=1001, cgroup=SLURM)}
    node = Node(files, nvml={"system": {}, "devices": [device]}, records=(line(XID.format(pid=7), at=950.0),))
    anonymiser = Anonymiser(MANIFEST.hostname) if anonymise else None
    with BundleWriter(str(tmp_path / "b"), MANIFEST, node.link, anonymiser=anonymiser) as writer:
        recorded = RecordingMachine(node, lambda add: add(writer))
        for source in (NvmlSource(), KmsgSource(PATTERNS)):
            list(source.read(recorded))
    texts = [path.read_text() for path in (tmp_path / "b/proc").rglob("*") if path.is_file()]
    assert texts
    assert not any(
        word in text for text in texts for word in ("python3", "1000", "1001", "kubepods", "slurm", "4242")
    )
    replayed = ReplayMachine(Recording.open(str(tmp_path / "b")))
    owners = {
        observation.target: observation.signals["gpu.process_owners"]
        for observation in NvmlSource().read(replayed)
        if "gpu.process_owners" in observation.signals
    }
    first, second, third = (entry.split(":")[1:] for entry in str(owners[FIRST]).split())
    assert first == second != third
    assert first[0] == "900.00"
