"""Events of NVML through the real worker process, unmodified pynvml and the double of libnvidia-ml."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nodeguard.worker.device_events import DeviceEvent, DeviceEventQueue
from nodeguard.worker.lane import WorkerLane, nvml_lane
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.nvml_calls import REGISTER_EVENTS
from nodeguard.worker.progress import Deadlines
from nodeguard.worker.replay import replay_nvml
from nodeguard.worker.result import CallResult, LaneResult
from tests.nvml_double import Build, Double
from tests.waiting import PATIENCE, PROMPTLY
from tests.worker import recordings
from tests.worker.test_nvml_library import EVERYTHING

_SHORT = Deadlines(call=0.5, first=PATIENCE, grace=PATIENCE)
_XID, _CLOCK, _PSTATE = 0x8, 0x10, 0x4
_LOST, _UNINITIALIZED = 15, 1


def _gpus(*indices: int) -> dict[str, Any]:
    return {"system": recordings.SYSTEM, "devices": [recordings.hopper(index, links=0) for index in indices]}


@pytest.fixture
def events() -> Iterator[DeviceEventQueue]:
    events = DeviceEventQueue()
    yield events
    events.close()


@contextmanager
def _lane(double: Double, events: DeviceEventQueue) -> Iterator[WorkerLane]:
    with nvml_lane(str(double.path), deadlines=_SHORT, events=events) as lane:
        yield lane


def _take(events: DeviceEventQueue, within: float = PATIENCE) -> list[tuple[int, int, str]]:
    """Wait for events and return them."""
    select.select([events.fileno()], [], [], within)
    return [(event.device, event.data, event.address) for event in events.take()]


def _error(answer: LaneResult, scope: int, call: str = REGISTER_EVENTS) -> Any:
    return next(
        (entry.result for entry in answer.results if (entry.scope, entry.call) == (scope, call)), None
    )


def test_an_event_arrives_between_two_rounds(nvml_double: Build, events: DeviceEventQueue) -> None:
    double = nvml_double(_gpus(0, 1))
    with _lane(double, events) as lane:
        lane.round()
        before = time.monotonic()
        double.tell(1, _XID, 79)
        assert select.select([events.fileno()], [], [], PATIENCE)[0]
        [event] = events.take()
        assert event == DeviceEvent(1, _XID, 79, "00000000:02:00.0", event.at)
        assert event.at is not None
        assert before <= event.at <= time.monotonic()


def test_only_error_events_are_registered(nvml_double: Build, events: DeviceEventQueue) -> None:
    double = nvml_double(_gpus(0))
    with _lane(double, events) as lane:
        lane.round()
        for type_ in (_CLOCK, _PSTATE, _XID):
            double.tell(0, type_, type_)
        assert [data for _, data, _ in _take(events)] == [_XID]


def test_a_round_is_the_same_with_and_without_events(nvml_double: Build, events: DeviceEventQueue) -> None:
    replayed = replay_nvml(LaneState(), EVERYTHING)
    with _lane(nvml_double(EVERYTHING), events) as lane:
        assert [lane.round(), lane.round()] == [replayed, replayed]


@pytest.mark.parametrize("error", ["NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_UNKNOWN"])
def test_a_gpu_without_events_is_read(nvml_double: Build, events: DeviceEventQueue, error: str) -> None:
    nvml = _gpus(0, 1)
    nvml["devices"][0][REGISTER_EVENTS] = {"error": error}
    double = nvml_double(nvml)
    with _lane(double, events) as lane:
        first, second = lane.round(), lane.round()
        assert first == second == replay_nvml(LaneState(), nvml)
        assert _error(second, 0) == {"error": error}
        double.tell(1, _XID, 79)
        assert _take(events) == [(1, 79, "00000000:02:00.0")]


@pytest.mark.parametrize(
    "name", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetFree"]
)
def test_a_library_without_events_is_read(nvml_double: Build, events: DeviceEventQueue, name: str) -> None:
    double = nvml_double(_gpus(0), without=(name,))
    with _lane(double, events) as lane:
        workers = []
        for _ in range(3):
            answer = lane.round()
            workers.append(lane._worker)
            assert _error(answer, 0) in (None, {"error": "NVML_ERROR_FUNCTION_NOT_FOUND"})
            assert (answer.stalled, answer.failed) == ((), "")
        assert len(set(workers)) == 1


def test_without_supported_event_types_xids_are_registered(
    nvml_double: Build, events: DeviceEventQueue
) -> None:
    double = nvml_double(_gpus(0), without=("nvmlDeviceGetSupportedEventTypes",))
    with _lane(double, events) as lane:
        lane.round()
        double.tell(0, _XID, 13)
        assert [data for _, data, _ in _take(events)] == [13]


def test_events_of_a_later_gpu_arrive(nvml_double: Build, events: DeviceEventQueue) -> None:
    double = nvml_double(_gpus(0))
    with _lane(double, events) as lane:
        lane.round()
        double.answer(_gpus(0, 1))
        lane.round()
        double.tell(1, _XID, 79)
        assert _take(events) == [(1, 79, "00000000:02:00.0")]


def test_after_the_death_of_a_worker_events_come_from_the_next(
    nvml_double: Build, events: DeviceEventQueue
) -> None:
    double = nvml_double(_gpus(0))
    with _lane(double, events) as lane:
        lane.round()
        double.tell(0, _XID, 13)
        assert select.select([events.fileno()], [], [], PATIENCE)[0]
        worker = lane._worker
        assert worker is not None
        worker.kill()
        assert select.select([worker._pidfd], [], [], PATIENCE)[0]
        assert lane.round().results
        assert [data for _, data, _ in _take(events)] == [13], "events before its death are not lost"
        double.tell(0, _XID, 79)
        assert [data for _, data, _ in _take(events)] == [79]


@pytest.mark.parametrize("code", [_LOST, _UNINITIALIZED])
def test_the_next_round_restarts_a_failed_wait(
    nvml_double: Build, events: DeviceEventQueue, code: int
) -> None:
    double = nvml_double(_gpus(0))
    with _lane(double, events) as lane:
        lane.round()
        double.tell("error", code)
        double.tell(0, _XID, 79)
        taken: list[tuple[int, int, str]] = []
        for _ in range(100):
            lane.round()
            if taken := _take(events, 0.05):
                break
        assert taken == [(0, 79, "00000000:01:00.0")]


def test_a_registration_that_never_returns_costs_its_device_only(
    nvml_double: Build, events: DeviceEventQueue
) -> None:
    nvml = _gpus(0, 1)
    nvml["devices"][0][REGISTER_EVENTS] = {"error": "stall"}
    double = nvml_double(nvml)
    with _lane(double, events) as lane:
        answer = lane.round()
        assert answer == replay_nvml(LaneState(), nvml)
        assert answer.stalled == (CallResult(0, REGISTER_EVENTS),)
        double.tell(1, _XID, 79)
        assert _take(events) == [(1, 79, "00000000:02:00.0")]


def test_a_new_lane_continues_after_a_closed_one(nvml_double: Build, events: DeviceEventQueue) -> None:
    double = nvml_double(_gpus(0))
    for code in (13, 79):
        with _lane(double, events) as lane:
            lane.round()
            double.tell(0, _XID, code)
            assert select.select([events.fileno()], [], [], PATIENCE)[0]
        assert [data for _, data, _ in _take(events)] == [code], "it stays in the queue of a closed lane"


def test_a_wait_for_events_does_not_block_closing(nvml_double: Build, events: DeviceEventQueue) -> None:
    with _lane(nvml_double(_gpus(0)), events) as lane:
        lane.round()
        worker = lane._worker
        began = time.monotonic()
    assert time.monotonic() - began < PROMPTLY
    assert worker is not None
    assert worker.status() == -9


def _lets_go(lane: WorkerLane, double: Double) -> None:
    assert lane._worker is not None
    pipe, lane._worker._rounds = lane._worker._rounds, os.dup(lane._worker._log)
    os.close(pipe)


def _breaks(lane: WorkerLane, double: Double) -> None:
    lost = recordings.hopper() | {"nvmlDeviceGetEccMode": {"error": "NVML_ERROR_UNINITIALIZED"}}
    double.answer({"system": recordings.SYSTEM, "devices": [lost]})
    assert lane.round().stalled == ()


@pytest.mark.parametrize("leave", [_lets_go, _breaks])
def test_a_worker_exits_while_its_thread_waits(
    nvml_double: Build, events: DeviceEventQueue, leave: Callable[[WorkerLane, Double], None]
) -> None:
    double = nvml_double(_gpus(0))
    with _lane(double, events) as lane:
        lane.round()
        worker = lane._worker
        assert worker is not None
        life = os.dup(worker._pidfd)
        leave(lane, double)
        assert select.select([life], [], [], PATIENCE)[0]
        os.close(life)
        assert worker.status() == 0
