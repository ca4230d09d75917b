"""The file-system lane on real file systems, some of which do not answer."""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from nodeguard.worker import filesystem_calls
from nodeguard.worker.call_log import CallLog
from nodeguard.worker.filesystem_calls import ask_all, file_call, statvfs
from nodeguard.worker.lane import WorkerLane, filesystem_lane, nvml_lane
from nodeguard.worker.progress import Deadlines
from nodeguard.worker.result import SYSTEM, CallResult, FileRequest, FileResult, LaneResult, file_result
from tests.fuse import Manner, Server
from tests.nvml_double import Build
from tests.waiting import PATIENCE, PROMPTLY
from tests.worker.puppets import Stage

_SHORT = Deadlines(call=0.5, first=PATIENCE, grace=0.5)
_PATIENT = Deadlines(call=0.5, first=PATIENCE, grace=PATIENCE)


def test_statvfs_is_called_for_each_mount_that_does_not_rest() -> None:
    calls: list[Any] = []
    ask_all(
        CallLog(lambda scope, call: calls.append((scope, call)), lambda _: None),
        frozenset({1}),
        ("/", "/x", "/y"),
    )
    assert calls == [(0, "statvfs(/)"), (2, "statvfs(/y)")]


def test_statvfs_returns_all_its_fields(tmp_path: Path) -> None:
    odd = tmp_path / "a (b) \u00e9"
    odd.mkdir()
    seen = os.statvfs(odd)
    result = statvfs(0, f"statvfs({odd})")
    assert result["f_frsize"] == seen.f_frsize
    assert set(result) == {
        *("f_frsize", "f_blocks", "f_bfree", "f_bavail"),
        *("f_files", "f_ffree", "f_favail", "f_flag"),
    }


def test_a_failed_statvfs_returns_the_errno(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert statvfs(0, f"statvfs({tmp_path}/none)") == {"error": "ENOENT"}
    assert statvfs(0, f"statvfs({tmp_path}/file/x)") == {"error": "ENOTDIR"}


def test_a_lane_reads_rounds_with_one_process(tmp_path: Path) -> None:
    with filesystem_lane() as lane:
        answer = lane.round((str(tmp_path), "/none"))
        assert answer.results[0].result["f_frsize"] == os.statvfs(tmp_path).f_frsize
        assert answer.results[1] == CallResult(1, "statvfs(/none)", {"error": "ENOENT"})
        assert lane.round(("/none",)) == LaneResult((CallResult(0, "statvfs(/none)", {"error": "ENOENT"}),))


def test_more_mounts_than_a_pipe_holds() -> None:
    mounts = tuple(f"/none/{index:090}" for index in range(2000))
    with filesystem_lane() as lane:
        assert len(lane.round(mounts).results) == 2000


def test_a_file_system_that_answers(fuse_mount: Callable[[Manner], Server]) -> None:
    with filesystem_lane(deadlines=_SHORT) as lane:
        answer = lane.round((fuse_mount("answering").path,))
    assert answer.results[0].result["f_bavail"] == 500


def test_a_worker_that_survives_sigkill_is_hung(
    fuse_mount: Callable[[Manner], Server], nvml_double: Build
) -> None:
    server = fuse_mount("swallowing")
    mounts = ("/", server.path, "/proc")
    hung = CallResult(1, f"statvfs({server.path})")
    with filesystem_lane(deadlines=_SHORT) as lane, nvml_lane(str(nvml_double({}).path)) as other:
        first = lane.round(mounts)
        assert first.hung == hung
        assert [entry.call for entry in first.results] == ["statvfs(/)"]
        assert other.round().results, "the other lane does not wait"
        assert lane.begin(mounts) == LaneResult(hung=hung), "it is answered without a wait"
        worker = lane._worker
        assert worker is not None
        server.release()
        gone = select.poll()
        gone.register(worker._pidfd, select.POLLIN)
        assert gone.poll(PATIENCE * 1000), "closing /dev/fuse lets the process end"
        assert lane.round(mounts) == LaneResult(hung=hung), "and yet no second one is started"
    assert worker.status() == -9


async def test_an_event_loop_waits_for_a_round(fuse_mount: Callable[[Manner], Server]) -> None:
    mounts = ("/", fuse_mount("silent").path, "/proc")
    loop = asyncio.get_running_loop()
    stepped = asyncio.Event()
    with filesystem_lane(deadlines=_PATIENT) as lane:
        loop.add_reader(lane.fileno(), stepped.set)
        answer = lane.begin(mounts)
        while answer is None:
            stepped.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(stepped.wait(), lane.next_check() - time.monotonic())
            answer = lane.step()
        loop.remove_reader(lane.fileno())
    assert [entry.scope for entry in answer.results] == [0, 2]
    assert [entry.scope for entry in answer.stalled] == [1]


def test_closing_a_lane_that_hangs_does_not_wait(fuse_mount: Callable[[Manner], Server]) -> None:
    server = fuse_mount("swallowing")
    lane = filesystem_lane(deadlines=_SHORT)
    assert lane.round((server.path,)).hung
    worker = lane._worker
    began = time.monotonic()
    lane.close()
    assert time.monotonic() - began < PROMPTLY
    assert worker is not None
    server.release()
    os.waitpid(worker._pid, 0)


def test_a_worker_that_sigkill_ends_is_stalled(fuse_mount: Callable[[Manner], Server]) -> None:
    server = fuse_mount("silent")
    mounts = ("/", server.path, "/proc")
    with filesystem_lane(deadlines=_PATIENT) as lane:
        first = lane.round(mounts)
        assert first.stalled == (CallResult(1, f"statvfs({server.path})"),)
        assert first.hung is None
        assert [entry.call for entry in first.results] == ["statvfs(/)", "statvfs(/proc)"]
        second = lane.round(mounts)
        assert [entry.scope for entry in second.results] == [0, 2]
        assert (second.stalled, second.skipped) == ((), first.stalled), "it is not read again"
        lane.stop_worker(ends_stalls=True)
        assert lane.round(mounts).stalled


def run(lane: WorkerLane, request: FileRequest) -> FileResult:
    return file_result(request, lane.round(file=request))


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_file_is_written_read_and_set_aside_through_the_lane(tmp_path: Path) -> None:
    path, data = str(tmp_path / "state" / "me mory"), b'\n{"file": 1}\n' + bytes(range(256)) * 2000
    with filesystem_lane() as lane:
        assert run(lane, FileRequest("read", path)) == FileResult(failed="ENOENT")
        assert run(lane, FileRequest("write", path, data)) == FileResult(len(data))
        assert run(lane, FileRequest("read", path)) == FileResult(data)
        assert lane.round(("/none",)).results == (CallResult(0, "statvfs(/none)", {"error": "ENOENT"}),)
        assert run(lane, FileRequest("write", path)) == FileResult(0)
        assert run(lane, FileRequest("read", path)) == FileResult(b"")
        assert run(lane, FileRequest("set-aside", path)) == FileResult(f"{path}.aside-1")
    assert names(tmp_path / "state") == ["me mory.aside-1"]
    assert os.stat(tmp_path / "state").st_mode & 0o077 == 0


def test_an_unfinished_file_is_replaced_with_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    (tmp_path / "memory.new").write_bytes(b"half of an old on")
    assert file_call(f"write({path})", b"new") == 3
    assert (names(tmp_path), path.read_bytes()) == (["memory"], b"new")
    assert path.stat().st_mode & 0o077 == 0


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert file_call(f"write({path})", b"new") == {"error": "ENOSPC"}
    assert (names(tmp_path), path.read_bytes()) == (["memory"], b"old")


def test_only_a_few_files_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    for at in range(6):
        path.write_text(str(at))
        assert file_call(f"set-aside({path})") == f"{path}.aside-1"
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == {
        "memory.aside-1": "5",
        "memory.aside-2": "4",
        "memory.aside-3": "3",
    }


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem_calls, "LONGEST", 4)
    (tmp_path / "memory").write_bytes(b"12345")
    assert file_call(f"read({tmp_path}/memory)") == {"error": "EFBIG"}


def test_a_hung_disk_hangs_only_its_lane(fuse_mount: Callable[[Manner], Server]) -> None:
    server = fuse_mount("swallowing")
    request = FileRequest("read", f"{server.path}/state")
    with filesystem_lane(deadlines=Deadlines(call=0.5, first=PATIENCE, grace=0.5)) as lane:
        assert run(lane, request).failed == f"read({server.path}/state) hangs"
        assert run(lane, request).failed == f"read({server.path}/state) hangs"
        worker = lane._worker
        assert worker is not None
        server.release()
        gone = select.poll()
        gone.register(worker._pidfd, select.POLLIN)
        assert gone.poll(PATIENCE * 1000)


@pytest.mark.parametrize("name", ["write", "set-aside"])
def test_a_call_with_fsync_has_a_longer_deadline_than_a_read(name: Literal["write", "set-aside"]) -> None:
    stage = Stage()
    request = FileRequest(name, "/state/state", b"x")
    with stage.lane as lane:
        assert lane.begin(file=request) is None
        assert stage.worker.file == request
        stage.worker.does([SYSTEM, request.call])
        stage.later(0.0)
        assert stage.later(29.0) is None
        assert stage.worker.status() is None
        result = stage.later(1.0) or stage.later(0.0)
    assert result == LaneResult(stalled=(CallResult(SYSTEM, request.call),))
    assert file_result(request, result).failed == f"{name}(/state/state) gave no answer"
