"""A file of the agent on disks that are full, read-only, or do not answer."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.worker import filesystem_calls
from nodeguard.worker.filesystem_calls import file_call
from nodeguard.worker.lane import WorkerLane, filesystem_lane
from nodeguard.worker.progress import Deadlines
from nodeguard.worker.result import SYSTEM, CallResult, FileRequest, FileResult, LaneResult, file_result
from tests.fuse import Manner, Server
from tests.worker.puppets import Stage


def done(lane: WorkerLane, wanted: FileRequest) -> FileResult:
    return file_result(wanted, lane.round(file=wanted))


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_file_is_written_read_and_set_aside_through_the_lane(tmp_path: Path) -> None:
    path, data = str(tmp_path / "state" / "me mory"), b'\n{"file": 1}\n' + bytes(range(256)) * 2000
    with filesystem_lane() as lane:
        assert done(lane, FileRequest("read", path)) == FileResult(failed="ENOENT")
        assert done(lane, FileRequest("write", path, data)) == FileResult(len(data))
        assert done(lane, FileRequest("read", path)) == FileResult(data)
        assert lane.round(("/none",)).results == (CallResult(0, "statvfs(/none)", {"error": "ENOENT"}),)
        assert done(lane, FileRequest("write", path)) == FileResult(0)
        assert done(lane, FileRequest("read", path)) == FileResult(b"")
        assert done(lane, FileRequest("set-aside", path)) == FileResult(f"{path}.aside-1")
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


def test_a_link_in_place_of_the_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"kept")
    (tmp_path / "memory.new").symlink_to(tmp_path / "victim")
    assert file_call(f"write({tmp_path}/memory)", b"new") == 3
    assert (tmp_path / "victim").read_bytes() == b"kept"


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
    wanted = FileRequest("read", f"{server.path}/memory")
    with filesystem_lane(deadlines=Deadlines(call=0.5, first=10.0, grace=0.5)) as lane:
        assert done(lane, wanted).failed == f"read({server.path}/memory) hangs"
        assert done(lane, wanted).failed == f"read({server.path}/memory) hangs"
        worker = lane._worker
        assert worker is not None
        server.release()
        gone = select.poll()
        gone.register(worker._pidfd, select.POLLIN)
        assert gone.poll(10_000)


def test_a_write_has_a_longer_deadline_than_a_read() -> None:
    stage = Stage()
    wanted = FileRequest("write", "/state/state", b"x")
    with stage.lane as lane:
        assert lane.begin(file=wanted) is None
        assert stage.worker.file == wanted
        stage.worker.does([SYSTEM, wanted.call])
        stage.later(0.0)
        assert stage.later(29.0) is None
        assert stage.worker.status() is None
        result = stage.later(1.0) or stage.later(0.0)
    assert result == LaneResult(stalled=(CallResult(SYSTEM, wanted.call),))
    assert file_result(wanted, result).failed == "write(/state/state) gave no answer"
