"""The file-system lane on real file systems, some of which do not answer."""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodeguard.worker.call_log import CallLog
from nodeguard.worker.filesystem_calls import ask_all, statvfs
from nodeguard.worker.lane import filesystem_lane, nvml_lane
from nodeguard.worker.progress import Deadlines
from nodeguard.worker.result import CallResult, LaneResult
from tests.fuse import Manner, Server
from tests.nvml_double import Build
from tests.waiting import PATIENCE, PROMPTLY

_SHORT = Deadlines(call=0.5, first=PATIENCE, grace=0.5)
_PATIENT = Deadlines(call=0.5, first=PATIENCE, grace=PATIENCE)


def test_statvfs_is_called_for_each_mount_that_does_not_rest() -> None:
    asked: list[Any] = []
    ask_all(
        CallLog(lambda scope, call: asked.append((scope, call)), lambda _: None),
        frozenset({1}),
        ("/", "/x", "/y"),
    )
    assert asked == [(0, "statvfs(/)"), (2, "statvfs(/y)")]


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
        assert gone.poll(10_000), "closing /dev/fuse lets the process end"
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
        assert (second.stalled, second.resting) == ((), first.stalled), "it is not read again"
        lane.end_rest(server.path)
        assert lane.round(mounts).stalled
