"""The state file on disks that are full, read-only, or do not answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.agent import state_file
from nodeguard.agent import state_file as keeper
from nodeguard.agent.reporting.delivery_queue import DeliveryState, Spool, append
from nodeguard.agent.state import AgentState, UnusableStateError, decode_state
from nodeguard.agent.state_file import StateFile, StateKeeper
from nodeguard.model.instant import Instant
from nodeguard.pipeline.pipeline import PipelineState
from nodeguard.sources.machine import LogCursor
from nodeguard.worker.lane import WorkerLane, filesystem_lane
from nodeguard.worker.process import WorkerProcess
from nodeguard.worker.progress import Deadlines
from tests.agent.scene import workers
from tests.fuse import Manner, Server, _call
from tests.waiting import PATIENCE, until_async

NOW = Instant(1e9, 100.0, "boot")
STATE = AgentState("boot", 90.0, pipeline=PipelineState(LogCursor("boot", 7)))
_MS_RDONLY, _MNT_DETACH = 1, 2


@pytest.fixture
def lane() -> Iterator[WorkerLane]:
    with filesystem_lane(deadlines=Deadlines(call=0.5, first=PATIENCE, grace=0.5)) as lane:
        yield lane


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[int, str], Path]]:
    """Mount a tmpfs with flags and options; skip the test if that is not possible."""
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


def test_a_saved_state_is_loaded_after_a_restart(tmp_path: Path, lane: WorkerLane) -> None:
    directory = str(tmp_path / "nodeguard")
    assert StateFile(directory, lane).load(NOW) == (AgentState(), "")
    assert StateFile(directory, lane).save(STATE) == ""
    assert StateFile(f"{directory}/", lane).load(NOW) == (STATE, "")
    assert os.listdir(directory) == ["state"]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "is truncated, corrupt or not a state file of nodeguard"),
        (b"nodeguard-state 1 00000000\nx", "is truncated or corrupt: its checksum is wrong"),
        (b"nodeguard-state 9 x\n", "has version 9, and this nodeguard reads 1: a newer version wrote it"),
    ],
)
def test_an_invalid_file_is_set_aside(content: bytes, wrong: str, tmp_path: Path, lane: WorkerLane) -> None:
    (tmp_path / "state").write_bytes(content)
    path = f"{tmp_path}/state"
    state, error = StateFile(str(tmp_path), lane).load(NOW)
    assert state == AgentState()
    assert error == (
        f"{path} {wrong}; the earlier state of the agent is lost: the file was renamed to {path}.aside-1; "
        "remove it if it is not needed"
    )
    assert (tmp_path / "state.aside-1").read_bytes() == content
    assert StateFile(str(tmp_path), lane).load(NOW) == (AgentState(), ""), "the error is returned once"


def test_a_restored_snapshot_is_an_error(tmp_path: Path, lane: WorkerLane) -> None:
    file = StateFile(str(tmp_path), lane)
    assert file.save(STATE) == ""
    state, wrong = file.load(Instant(1e9, 30.0, "boot"))
    assert state.pipeline.cursor is None
    assert wrong == (
        f"{tmp_path}/state was written 1 min later in this boot: the machine was set back: "
        "it is ignored, except for the inventory"
    )


def test_a_full_disk_degrades_to_memory_and_keeps_the_old_file(
    lane: WorkerLane, tmpfs: Callable[[int, str], Path]
) -> None:
    disk = tmpfs(0, "size=16k")
    file = StateFile(str(disk), lane)
    assert file.save(STATE) == ""
    (disk / "hog").write_bytes(b"x" * 8192)
    noise = Random(1).randbytes(8192)  # does not compress
    assert file.save(replace(STATE, delivery=DeliveryState(spool=append(Spool(), noise)))) == (
        f"{disk}/state cannot be written: the disk is full: free space or inodes on it; "
        "until then a restart of the agent loses what came after the last write"
    )
    assert sorted(os.listdir(disk)) == ["hog", "state"]
    assert file.load(NOW) == (STATE, "")


def test_a_read_only_disk_degrades_to_memory(lane: WorkerLane, tmpfs: Callable[[int, str], Path]) -> None:
    disk = tmpfs(_MS_RDONLY, "")
    assert StateFile(str(disk), lane).load(NOW) == (AgentState(), "")
    error = StateFile(str(disk), lane).save(STATE)
    assert error.startswith(f"{disk}/state cannot be written: the file system is read-only: make it writable")


def test_a_corrupt_file_on_a_read_only_disk_is_not_renamed(
    tmp_path: Path, lane: WorkerLane, tmpfs: Callable[[int, str], Path]
) -> None:
    disk = tmpfs(0, "")
    (disk / "state").write_bytes(b"x")
    _call("mount", b"", str(disk).encode(), b"", _MS_RDONLY | 32, b"")  # MS_REMOUNT
    state, error = StateFile(str(disk), lane).load(NOW)
    assert state == AgentState()
    assert error.endswith("; the file could not be renamed (EROFS): remove it")


@pytest.mark.parametrize("missing", ["none/nodeguard", "file"])
def test_a_directory_that_cannot_be_made_is_an_error(missing: str, tmp_path: Path, lane: WorkerLane) -> None:
    (tmp_path / "file").touch()
    assert "name another" in StateFile(f"{tmp_path}/{missing}", lane).save(STATE)


@pytest.mark.parametrize(
    "manner", ["swallowing", "silent"], ids=["what SIGKILL does not end", "what SIGKILL ends"]
)
def test_a_hung_disk_degrades_to_memory(
    manner: Manner, lane: WorkerLane, fuse_mount: Callable[[Manner], Server]
) -> None:
    server = fuse_mount(manner)
    file = StateFile(server.path, lane)
    state, wrong = file.load(NOW, within=1.0)
    assert state == AgentState()
    assert wrong.startswith(f"{server.path}/state cannot be read: ")
    error = file.save(STATE, within=1.0)
    assert error.startswith(f"{server.path}/state cannot be written: ")
    assert "see the kernel log for its disk or file server" in error
    server.release()


def test_a_state_that_cannot_be_encoded_is_an_error(
    monkeypatch: pytest.MonkeyPatch, lane: WorkerLane
) -> None:
    def encoded(_: AgentState) -> bytes:
        raise UnusableStateError("cannot be encoded (reason)")

    monkeypatch.setattr(state_file, "encode_state", encoded)
    error = StateFile("/none", lane).save(STATE)
    assert error.startswith("/none/state: the state cannot be encoded (reason): please report it")


def test_a_worker_that_cannot_be_started_is_an_error() -> None:
    def start() -> WorkerProcess:
        raise OSError("no processes left")

    assert "no processes left" in StateFile("/none", WorkerLane(start)).save(STATE)


def test_between_two_writes_there_is_no_process(tmp_path: Path, lane: WorkerLane) -> None:
    file = StateFile(str(tmp_path), lane)
    assert file.save(STATE) == ""
    assert len(workers()) == 1
    file.lane.stop_worker()
    assert workers() == []
    assert file.save(STATE) == ""


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_path_that_is_not_a_file_is_an_error(
    tmp_path: Path, lane: WorkerLane, make: Callable[[str], None]
) -> None:
    make(str(tmp_path / "state"))
    state, wrong = StateFile(str(tmp_path), lane).load(NOW)
    assert state == AgentState()
    assert wrong.startswith(f"{tmp_path}/state cannot be read: it is ")
    assert ": remove it" in wrong


@pytest.fixture
def patient_lane() -> Iterator[WorkerLane]:
    with filesystem_lane(deadlines=Deadlines(call=PATIENCE, first=PATIENCE, grace=PATIENCE)) as lane:
        yield lane


class CountingKeeper:
    """A StateKeeper with a counter as its state, and the error of each write."""

    def __init__(self, directory: Path, lane: WorkerLane) -> None:
        self.sequence = 0
        self.errors: list[str] = []
        self.stored = asyncio.Event()
        self.keeper = StateKeeper(StateFile(str(directory), lane), self.capture, self.on_stored)

    def capture(self) -> AgentState | None:
        return (
            AgentState("boot", 1.0, pipeline=PipelineState(LogCursor("boot", self.sequence)))
            if self.sequence
            else None
        )

    def on_stored(self, state: AgentState, error: str) -> None:
        assert state.pipeline.cursor is not None
        self.errors.append(error)
        self.stored.set()


def on_disk(directory: Path) -> int:
    cursor = decode_state((directory / "state").read_bytes()).pipeline.cursor
    assert cursor is not None
    return cursor.sequence


async def test_a_change_is_written_at_once_and_later_ones_together(
    tmp_path: Path, patient_lane: WorkerLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GAP", 0.1)
    counter = CountingKeeper(tmp_path / "state", patient_lane)
    running = asyncio.ensure_future(counter.keeper.run())
    async with asyncio.timeout(PATIENCE):
        for last in (1, 50):
            while counter.sequence < last:
                counter.sequence += 1
                counter.keeper.mark_changed()
            await counter.stored.wait()
            counter.stored.clear()
            assert on_disk(tmp_path / "state") == last
    assert counter.errors == ["", ""]
    await until_async(lambda: not workers())
    running.cancel()


async def test_nothing_is_written_before_the_first_verdict(tmp_path: Path, patient_lane: WorkerLane) -> None:
    counter = CountingKeeper(tmp_path / "state", patient_lane)
    await counter.keeper.end()
    assert list(tmp_path.iterdir()) == []


async def test_the_last_state_is_written_at_the_end(tmp_path: Path, patient_lane: WorkerLane) -> None:
    counter = CountingKeeper(tmp_path / "state", patient_lane)
    counter.sequence = 7
    await counter.keeper.end()
    assert on_disk(tmp_path / "state") == 7


async def test_a_failed_write_is_reported(tmp_path: Path, patient_lane: WorkerLane) -> None:
    (tmp_path / "state").write_text("no directory")
    counter = CountingKeeper(tmp_path / "state", patient_lane)
    counter.sequence = 1
    await counter.keeper.end()
    assert "part of its path is no directory" in counter.errors[0]


async def test_save_now_waits_for_the_write(tmp_path: Path, patient_lane: WorkerLane) -> None:
    counter = CountingKeeper(tmp_path / "state", patient_lane)
    counter.sequence = 3
    running = asyncio.ensure_future(counter.keeper.run())
    async with asyncio.timeout(PATIENCE):
        assert await counter.keeper.save_now() == ""
    assert on_disk(tmp_path / "state") == 3
    running.cancel()


async def test_an_unexpected_error_is_reported_and_the_next_write_is_tried(
    tmp_path: Path, patient_lane: WorkerLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GAP", 0.01)
    counter = CountingKeeper(tmp_path / "state", patient_lane)
    counter.sequence = 1
    save = StateFile.save

    def broken(*_: object) -> str:
        monkeypatch.setattr(StateFile, "save", save)
        raise TypeError("no")

    monkeypatch.setattr(StateFile, "save", broken)
    running = asyncio.ensure_future(counter.keeper.run())
    async with asyncio.timeout(PATIENCE):
        assert await counter.keeper.save_now() == f"{tmp_path}/state/state: please report it: TypeError: no"
        assert await counter.keeper.save_now() == ""
    running.cancel()
