"""The memory's file on disks that are full, read-only, or do not answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent import state_file
from nodeguard.agent.reporting.delivery_queue import DeliveryState, Spool, append
from nodeguard.agent.state import AgentState, UnusableStateError
from nodeguard.agent.state_file import StateFile
from nodeguard.model.instant import Instant
from nodeguard.pipeline.pipeline import PipelineState
from nodeguard.sources.machine import LogCursor
from nodeguard.worker.lane import WorkerLane, filesystem_lane
from nodeguard.worker.process import WorkerProcess
from nodeguard.worker.progress import Deadlines
from tests.agent.scene import workers
from tests.fuse import Manner, Server, _call
from tests.waiting import PATIENCE

NOW = Instant(1e9, 100.0, "boot")
MEMORY = AgentState("boot", 90.0, 1e9, pipeline=PipelineState(LogCursor("boot", 7)))
_MS_RDONLY, _MNT_DETACH = 1, 2


@pytest.fixture
def lane() -> Iterator[WorkerLane]:
    with filesystem_lane(deadlines=Deadlines(call=0.5, first=PATIENCE, grace=0.5)) as lane:
        yield lane


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[int, str], Path]]:
    """Mounts a memory file system with flags and options; skips the test where that cannot be."""
    mounted: list[Path] = []

    def mount(flags: int, options: str) -> Path:
        path = tmp_path / "disk"
        path.mkdir()
        try:
            _call("mount", b"nodeguard-test", str(path).encode(), b"tmpfs", flags, options.encode())
        except OSError as refused:
            pytest.skip(f"a file system cannot be mounted here: {refused}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        _call("umount2", str(path).encode(), _MNT_DETACH)


def test_what_is_saved_is_loaded_after_a_restart(tmp_path: Path, lane: WorkerLane) -> None:
    directory = str(tmp_path / "nodeguard")
    assert StateFile(directory, lane).load(NOW) == (AgentState(), "")
    assert StateFile(directory, lane).save(MEMORY) == ""
    assert StateFile(f"{directory}/", lane).load(NOW) == (MEMORY, "")
    assert os.listdir(directory) == ["state"]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "is truncated, corrupt or not a state file of nodeguard"),
        (b"nodeguard-state 1 00000000\nx", "is truncated or corrupt: its checksum is wrong"),
        (b"nodeguard-state 9 x\n", "has version 9, and this nodeguard reads 1: a newer version wrote it"),
    ],
)
def test_a_file_that_cannot_be_understood_is_set_aside(
    content: bytes, wrong: str, tmp_path: Path, lane: WorkerLane
) -> None:
    (tmp_path / "state").write_bytes(content)
    path = f"{tmp_path}/state"
    memory, told = StateFile(str(tmp_path), lane).load(NOW)
    assert memory == AgentState()
    assert told == (
        f"{path} {wrong}; the earlier state of the agent is lost: the file was renamed to {path}.aside-1; "
        "remove that once nobody needs it"
    )
    assert (tmp_path / "state.aside-1").read_bytes() == content
    assert StateFile(str(tmp_path), lane).load(NOW) == (AgentState(), ""), "told once"


def test_a_machine_that_was_set_back_is_told(tmp_path: Path, lane: WorkerLane) -> None:
    file = StateFile(str(tmp_path), lane)
    assert file.save(MEMORY) == ""
    memory, wrong = file.load(Instant(1e9, 30.0, "boot"))
    assert memory.pipeline.cursor is None
    assert wrong == (
        f"{tmp_path}/state was written 60 s later in this boot: the machine was set back: "
        "it is ignored, except for the inventory"
    )


def test_a_full_disk_degrades_to_memory_and_keeps_the_old_file(
    lane: WorkerLane, tmpfs: Callable[[int, str], Path]
) -> None:
    disk = tmpfs(0, "size=16k")
    file = StateFile(str(disk), lane)
    assert file.save(MEMORY) == ""
    (disk / "hog").write_bytes(b"x" * 8192)
    noise = Random(1).randbytes(8192)  # that no compression makes small
    assert file.save(replace(MEMORY, delivery=DeliveryState(spool=append(Spool(), noise)))) == (
        f"{disk}/state cannot be written: the disk is full: free space or inodes on it; "
        "until then a restart of the agent loses what came after the last write"
    )
    assert sorted(os.listdir(disk)) == ["hog", "state"]
    assert file.load(NOW) == (MEMORY, "")


def test_a_read_only_disk_degrades_to_memory(lane: WorkerLane, tmpfs: Callable[[int, str], Path]) -> None:
    disk = tmpfs(_MS_RDONLY, "")
    assert StateFile(str(disk), lane).load(NOW) == (AgentState(), "")
    told = StateFile(str(disk), lane).save(MEMORY)
    assert told.startswith(f"{disk}/state cannot be written: the file system is read-only: make it writable")


def test_a_corrupt_file_on_a_read_only_disk_is_told_and_left(
    tmp_path: Path, lane: WorkerLane, tmpfs: Callable[[int, str], Path]
) -> None:
    disk = tmpfs(0, "")
    (disk / "state").write_bytes(b"x")
    _call("mount", b"", str(disk).encode(), b"", _MS_RDONLY | 32, b"")  # MS_REMOUNT
    memory, told = StateFile(str(disk), lane).load(NOW)
    assert memory == AgentState()
    assert told.endswith("; the file could not be renamed (EROFS): remove it")


@pytest.mark.parametrize("missing", ["none/nodeguard", "file"])
def test_a_directory_that_cannot_be_is_told(missing: str, tmp_path: Path, lane: WorkerLane) -> None:
    (tmp_path / "file").touch()
    assert "name another" in StateFile(f"{tmp_path}/{missing}", lane).save(MEMORY)


@pytest.mark.parametrize(
    "manner", ["swallowing", "silent"], ids=["what SIGKILL does not end", "what SIGKILL ends"]
)
def test_a_hung_disk_degrades_to_memory(
    manner: Manner, lane: WorkerLane, fuse_mount: Callable[[Manner], Server]
) -> None:
    server = fuse_mount(manner)
    file = StateFile(server.path, lane)
    memory, wrong = file.load(NOW, within=1.0)
    assert memory == AgentState()
    assert wrong.startswith(f"{server.path}/state cannot be read: ")
    told = file.save(MEMORY, within=1.0)
    assert told.startswith(f"{server.path}/state cannot be written: ")
    assert "see the kernel log for its disk or file server" in told
    server.release()


def test_what_cannot_be_encoded_is_told(monkeypatch: pytest.MonkeyPatch, lane: WorkerLane) -> None:
    def encoded(_: AgentState) -> bytes:
        raise UnusableStateError("cannot be encoded (why)")

    monkeypatch.setattr(state_file, "encode_state", encoded)
    told = StateFile("/none", lane).save(MEMORY)
    assert told.startswith("/none/state: the state cannot be encoded (why): please report it")


def test_a_worker_that_cannot_be_started_is_told() -> None:
    def start() -> WorkerProcess:
        raise OSError("no processes left")

    assert "no processes left" in StateFile("/none", WorkerLane(start)).save(MEMORY)


def test_between_two_writings_there_is_no_process(tmp_path: Path, lane: WorkerLane) -> None:
    file = StateFile(str(tmp_path), lane)
    assert file.save(MEMORY) == ""
    assert len(workers()) == 1
    file.stop_worker()
    assert workers() == []
    assert file.save(MEMORY) == ""


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_told_at_once_and_named(
    tmp_path: Path, lane: WorkerLane, make: Callable[[str], None]
) -> None:
    make(str(tmp_path / "state"))
    memory, wrong = StateFile(str(tmp_path), lane).load(NOW)
    assert memory == AgentState()
    assert wrong.startswith(f"{tmp_path}/state cannot be read: it is ")
    assert ": remove it" in wrong
