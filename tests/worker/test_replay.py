from __future__ import annotations

import pytest

from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml, replay_statvfs
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult

_ROOM = {"f_frsize": 4096, "f_blocks": 10, "f_bfree": 5, "f_bavail": 4, "f_files": 0, "f_ffree": 0}


def test_without_a_recording_the_library_is_missing() -> None:
    answer = replay_nvml(LaneState(), None)
    assert answer.results == ()
    assert "libnvidia-ml.so.1" in answer.missing


@pytest.mark.parametrize("devices", [[], [{}]])
def test_a_recorded_error_is_that_of_the_initialisation(devices: list[dict[str, str]]) -> None:
    failed = {"error": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}
    answer = replay_nvml(LaneState(), failed | {"devices": devices})
    assert answer == LaneResult((CallResult(SYSTEM, "nvmlInit", failed),))


def test_the_count_is_the_number_of_recorded_devices() -> None:
    names = [{"nvmlDeviceGetName": "a"}, {"nvmlDeviceGetName": "c"}]
    answer = replay_nvml(LaneState(), {"system": {"nvmlDeviceGetCount": 3}, "devices": names})
    assert CallResult(SYSTEM, "nvmlDeviceGetCount", 2) in answer.results
    assert CallResult(1, "nvmlDeviceGetName", "c") in answer.results


def test_a_count_that_failed_stays_failed() -> None:
    failed = {"error": "NVML_ERROR_UNKNOWN"}
    answer = replay_nvml(LaneState(), {"system": {"nvmlDeviceGetCount": failed}, "devices": [{}]})
    assert answer.results[-1] == CallResult(SYSTEM, "nvmlDeviceGetCount", failed)


def test_unrecorded_calls_are_not_supported() -> None:
    device = {"nvmlDeviceGetFieldValues(230,0)": {"valueType": 1, "value": 0, "nvmlReturn": 15}}
    entries = replay_nvml(LaneState(), {"devices": [device]}).results
    assert CallResult(0, "nvmlDeviceGetUUID", {"error": "NVML_ERROR_NOT_SUPPORTED"}) in entries
    assert CallResult(0, "nvmlDeviceGetFieldValues(230,0)", {"error": "NVML_ERROR_GPU_IS_LOST"}) in entries


def test_after_a_stall_the_other_devices_are_read() -> None:
    memory = LaneState()
    nvml = {"devices": [{"error": "stall"}, {"nvmlDeviceGetName": "b"}]}
    first = replay_nvml(memory, nvml)
    assert first.stalled == (CallResult(0, "nvmlDeviceGetHandleByIndex"),)
    assert CallResult(1, "nvmlDeviceGetName", "b") in first.results
    second = replay_nvml(memory, {"devices": [{"nvmlDeviceGetName": "a"}, {"nvmlDeviceGetName": "b"}]})
    assert second.stalled == ()
    assert {entry.scope for entry in second.results} == {SYSTEM, 1}


def test_a_hang_ends_the_round_and_keeps_its_results() -> None:
    memory = LaneState()
    nvml = {"devices": [{"nvmlDeviceGetName": "a", "nvmlDeviceGetEccMode": {"error": "hang"}}, {}]}
    first = replay_nvml(memory, nvml)
    hung = CallResult(0, "nvmlDeviceGetEccMode")
    assert first.hung == hung
    assert CallResult(0, "nvmlDeviceGetName", "a") in first.results
    assert {entry.scope for entry in first.results} == {SYSTEM, 0}
    assert replay_nvml(memory, {"devices": [{}]}) == LaneResult(hung=hung)


def test_a_stall_of_the_initialisation() -> None:
    memory = LaneState()
    stalled = LaneResult((), (CallResult(SYSTEM, "nvmlInit"),))
    assert [replay_nvml(memory, {"error": "stall"}) for _ in range(2)] == [stalled, stalled]


def test_file_systems() -> None:
    memory = LaneState()
    calls = {
        "statvfs(/)": _ROOM,
        "statvfs(/nfs)": {"error": "stall"},
        "statvfs(/data)": {"error": "EIO"},
        "adjtimex": {"status": 0},
    }
    mounts = ("/", "/nfs", "/data", "/new")
    answer = replay_statvfs(memory, calls, mounts)
    assert answer.results == (
        CallResult(0, "statvfs(/)", _ROOM),
        CallResult(2, "statvfs(/data)", {"error": "EIO"}),
    )
    assert answer.stalled == (CallResult(1, "statvfs(/nfs)"),)
    assert replay_statvfs(memory, calls, mounts).stalled == ()
    hung = replay_statvfs(LaneState(), {"statvfs(/data)": {"error": "hang"}}, ("/data",))
    assert hung == LaneResult(hung=CallResult(0, "statvfs(/data)"))
