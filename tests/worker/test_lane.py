"""A lane with workers that the test controls, in virtual time."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from nodeguard.worker.lane import WorkerLane
from nodeguard.worker.lane_state import Hang
from nodeguard.worker.process import WorkerProcess
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult
from tests.worker.puppets import Stage

_NAME = "nvmlDeviceGetName"


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    with stage.lane:
        yield stage
    assert all(worker.closed for worker in stage.workers)


def test_a_round_ends_when_the_worker_reports_it(stage: Stage) -> None:
    assert stage.lane.begin() is None
    stage.worker.does([SYSTEM, "nvmlInit"], [SYSTEM, {"nvmlInit": None}], [0, _NAME])
    assert stage.later(1.0) is None
    stage.worker.does([0, {_NAME: "a"}], over=True)
    assert stage.later(1.0) == LaneResult((CallResult(0, _NAME, "a"),))
    assert stage.lane.begin() is None
    stage.worker.does(over=True)
    assert stage.later(0.0) == LaneResult()
    assert len(stage.workers) == 1
    assert stage.worker.requests == [([], ()), ([], ())]


def test_a_call_has_its_deadline_and_progress_renews_it(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([0, _NAME])
    for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial"):
        assert stage.later(4.9) is None
        assert stage.worker.status() is None
        stage.worker.does([0, {_NAME: "a"}], [0, call])
    assert stage.later(0.0) is None
    assert stage.lane.next_check() == stage.now + 1.0
    assert stage.later(5.0) is None
    assert stage.worker.status() == -9


def test_a_first_access_has_a_longer_deadline(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([0, "nvmlDeviceGetHandleByIndex"])
    stage.lane.step()
    assert stage.later(29.0) is None
    assert stage.worker.status() is None
    stage.later(1.0)
    assert stage.worker.status() == -9


def test_after_a_stall_a_new_worker_continues(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([0, _NAME], [0, {_NAME: "a"}], [1, _NAME])
    stage.lane.step()
    assert stage.later(5.0) is None
    assert stage.lane.next_check() == stage.now + 4.0
    assert stage.later(0.1) is None
    assert len(stage.workers) == 2
    assert stage.worker.requests == [([0, 1], ())]
    stage.worker.does([2, _NAME], [2, {_NAME: "c"}], over=True)
    answer = stage.later(0.1)
    assert answer == LaneResult(
        (CallResult(0, _NAME, "a"), CallResult(2, _NAME, "c")), (CallResult(1, _NAME),)
    )
    stage.lane.begin()
    assert stage.worker.requests[-1] == ([1], ())
    stage.worker.does(over=True)
    stage.lane.step()
    stage.lane.stop_worker()
    stage.lane.begin()
    assert len(stage.workers) == 3
    assert stage.worker.requests == [([1], ())], "the device still stalls"
    stage.worker.does(over=True)
    stage.lane.step()
    stage.lane.stop_worker(ends_stalls=True)
    stage.lane.begin()
    assert len(stage.workers) == 4
    assert stage.worker.requests == [([], ())]


def test_a_stall_of_the_system_ends_the_round(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([SYSTEM, "nvmlInit"])
    stage.lane.step()
    stage.later(30.0)
    assert stage.later(0.1) == LaneResult((), (CallResult(SYSTEM, "nvmlInit"),))
    assert len(stage.workers) == 1
    assert stage.lane.begin() is None
    assert stage.worker.requests == [([], ())]


def test_a_worker_that_does_not_start_is_overdue(stage: Stage) -> None:
    stage.lane.begin()
    assert stage.later(30.0) is None
    answer = stage.later(0.1)
    assert answer is not None
    assert answer.failed.startswith("the worker process did not start (no answer): see that ")
    assert answer == LaneResult(failed=answer.failed)


def test_a_worker_that_survives_sigkill_hangs_for_the_boot(stage: Stage) -> None:
    stage.obeys = False
    stage.lane.begin()
    stage.worker.does([0, _NAME], [0, {_NAME: "a"}], [1, _NAME])
    stage.lane.step()
    stage.later(5.0)
    assert stage.later(3.9) is None
    hung = CallResult(1, _NAME)
    assert stage.later(0.1) == LaneResult((CallResult(0, _NAME, "a"),), hung=hung)
    stage.lane.stop_worker()
    stage.worker.dies(-9)
    assert stage.lane.begin() == LaneResult(hung=hung)
    assert len(stage.workers) == 1


def test_a_dead_worker_is_reported_with_its_status(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([0, _NAME])
    stage.worker.dies(-11)
    assert stage.later(0.1) is None
    stage.worker.does([1, _NAME], [1, {_NAME: "b"}], [2, _NAME])
    stage.worker.dies(1)
    assert stage.later(0.1) is None
    assert stage.worker.requests == [([0, 1, 2], ())]
    stage.worker.does(over=True)
    answer = stage.later(0.1)
    assert answer is not None
    assert answer.stalled == (
        CallResult(0, _NAME, {"error": "worker died: signal 11"}),
        CallResult(2, _NAME, {"error": "worker died: exit status 1"}),
    )


def test_a_worker_that_exits_with_0_has_finished_its_round(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([0, _NAME], [0, {_NAME: "a"}])
    stage.worker.dies(0)
    assert stage.later(0.1) == LaneResult((CallResult(0, _NAME, "a"),))
    assert stage.lane.begin() is None
    assert len(stage.workers) == 2


def test_a_worker_that_died_between_rounds_is_replaced(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does(over=True)
    assert stage.later(0.0) == LaneResult()
    stage.worker.dies(-9)
    assert stage.lane.begin() is None
    assert len(stage.workers) == 2


def test_a_garbled_log_fails_the_round_and_ends_the_worker(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([0, _NAME], [0, {_NAME: "a"}])
    stage.worker.writes(b"\0\0\0\n")
    stage.lane.step()
    answer = stage.later(0.1)
    assert answer is not None
    assert answer.results == answer.stalled == ()
    assert answer.missing == ""
    assert answer.failed.startswith("worker log, line 3: ")
    assert stage.lane.begin() is None
    assert len(stage.workers) == 2


def test_a_last_line_cut_by_sigkill_is_ignored(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([SYSTEM, "nvmlInit"])
    stage.worker.writes(b'[-1,{"nvmlIn')
    stage.lane.step()
    stage.later(30.0)
    assert stage.later(0.1) == LaneResult((), (CallResult(SYSTEM, "nvmlInit"),))


def test_a_missing_library_is_in_the_result(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([SYSTEM, "nvmlInit"], [SYSTEM, {"nvmlInit": {"missing": "no library"}}], over=True)
    assert stage.later(0.1) == LaneResult(missing="no library")


def test_a_call_that_the_worker_cannot_make_has_failed(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.does([SYSTEM, "nvmlInit"], [SYSTEM, {"nvmlInit": {"failed": "no pynvml"}}], over=True)
    assert stage.later(0.1) == LaneResult(failed="no pynvml")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.EAGAIN, "Linux is 5.3 or newer"), (errno.EACCES, "let this user run that file")],
)
def test_a_worker_that_cannot_be_started_has_failed(code: int, remedy: str) -> None:
    def start() -> WorkerProcess:
        raise OSError(code, os.strerror(code), "/opt/python")

    with WorkerLane(start) as lane:
        answer = lane.round()
    assert answer.missing == ""
    assert f"{os.strerror(code)}: '/opt/python'" in answer.failed
    assert answer.failed.endswith(remedy)


def test_an_interrupted_round_returns_its_results(stage: Stage) -> None:
    assert stage.lane.begin(("/", "/nfs", "/data"), within=4.0) is None
    stage.worker.does([0, "statvfs(/)"], [0, {"statvfs(/)": {}}], [1, "statvfs(/nfs)"])
    assert stage.later(1.0) is None
    assert stage.lane.next_check() == stage.now + 1.0
    assert stage.later(3.0) is None
    assert stage.worker.status() == -9
    late = CallResult(1, "statvfs(/nfs)")
    assert stage.later(0.1) == LaneResult(
        (CallResult(0, "statvfs(/)", {}),), stalled=(late,), interrupted=late
    )
    assert len(stage.workers) == 1
    stage.lane.begin(("/", "/nfs", "/data"))
    assert stage.worker.requests == [([], ("/", "/nfs", "/data"))], (
        "the call had less than its deadline: its scope is not skipped"
    )


def test_a_call_that_has_just_begun_is_not_slow(stage: Stage) -> None:
    stage.lane.begin(within=4.0)
    stage.worker.does([SYSTEM, "nvmlInit"], [SYSTEM, {"nvmlInit": {"error": "X"}}])
    stage.later(3.0)
    stage.worker.does(
        [0, _NAME], [0, {_NAME: "a"}], [1, "nvmlDeviceGetUUID"], [1, {"nvmlDeviceGetUUID": "b"}]
    )
    stage.worker.does([1, _NAME])
    stage.later(0.5)
    assert stage.later(0.5) is None
    answer = stage.later(0.1)
    assert answer is not None
    assert (answer.stalled, answer.interrupted) == ((), CallResult(1, _NAME))
    assert [entry.scope for entry in answer.results] == [SYSTEM, 0], (
        "the results of a partly read device are left out"
    )


def test_a_worker_that_had_no_time_to_start_has_not_stalled(stage: Stage) -> None:
    stage.lane.begin(within=10.0)
    assert stage.later(10.0) is None
    assert stage.later(0.1) == LaneResult(interrupted=CallResult(SYSTEM, "start"))


def test_after_a_stall_no_worker_begins_once_the_time_is_over(stage: Stage) -> None:
    stage.lane.begin(within=5.0)
    stage.worker.does([0, _NAME])
    stage.lane.step()
    assert stage.later(5.0) is None
    late = CallResult(0, _NAME)
    assert stage.later(0.1) == LaneResult(stalled=(late,), interrupted=late)
    assert len(stage.workers) == 1


def test_an_interrupted_round_hangs_if_its_worker_survives_sigkill(stage: Stage) -> None:
    stage.obeys = False
    stage.lane.begin(within=1.0)
    stage.worker.does([0, _NAME])
    stage.lane.step()
    stage.later(1.0)
    assert stage.later(3.9) is None
    assert stage.later(0.1) == LaneResult(hung=CallResult(0, _NAME))


def test_a_worker_that_ends_before_its_first_call_is_a_fault_of_nodeguard(stage: Stage) -> None:
    stage.lane.begin()
    stage.worker.dies(127)
    answer = stage.later(0.1)
    assert answer is not None
    assert answer.failed.startswith("the worker process did not start (worker died: exit status 127): ")
    assert answer == LaneResult(failed=answer.failed)
    stage.obeys = False
    stage.lane.begin()
    stage.later(30.0)
    answer = stage.later(4.0)
    assert answer is not None
    assert answer == LaneResult(failed=answer.failed)
    assert stage.lane.begin() == answer, "none is started behind one that hangs"


def test_closing_ends_a_round_that_another_thread_waits_in() -> None:
    stage = Stage()
    started = threading.Event()
    start = stage._start

    def starting() -> WorkerProcess:
        started.set()
        return start()

    lane = WorkerLane(starting)
    answers: list[LaneResult] = []
    waiting = threading.Thread(target=lambda: answers.append(lane.round()))
    waiting.start()
    started.wait()
    lane.close()
    waiting.join()
    assert answers == [LaneResult(failed="the reader was closed")]
    assert [worker.closed for worker in stage.workers] == [True]
    stage.lane.close()


def test_a_closed_lane_starts_no_worker() -> None:
    stage = Stage()
    stage.lane.close()
    stage.lane.close()
    assert stage.lane.round().failed == "the reader was closed"
    assert stage.workers == []


@pytest.mark.parametrize("early", [True, False])
def test_a_real_worker_is_gone_after_closing_at_any_time(early: bool) -> None:
    started: list[WorkerProcess] = []
    running = threading.Event()

    def start() -> WorkerProcess:
        started.append(WorkerProcess("filesystem"))
        running.set()
        return started[-1]

    lane = WorkerLane(start)
    before = len(os.listdir("/proc/self/fd"))
    waiting = threading.Thread(target=lane.round, args=(("/",),))
    waiting.start()
    if not early:
        running.wait()
    lane.close()
    waiting.join()
    assert [worker.status() for worker in started] in ([], [-9], [0])
    assert len(os.listdir("/proc/self/fd")) == before - 2


def test_no_worker_is_started_behind_a_hung_one_of_an_earlier_lane() -> None:
    def start() -> WorkerProcess:
        raise AssertionError

    with WorkerLane(start, hang=Hang("/data", "statvfs(/data)")) as lane:
        assert lane.round(("/", "/data")) == LaneResult(hung=CallResult(1, "statvfs(/data)"))
        assert lane.hang == Hang("/data", "statvfs(/data)")
