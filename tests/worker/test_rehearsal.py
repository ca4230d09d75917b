from __future__ import annotations

import pytest

from nodeguard.worker.answer import SYSTEM, Answer, Entry
from nodeguard.worker.memory import Memory
from nodeguard.worker.rehearsal import rehearse_nvml, rehearse_statvfs

_ROOM = {"f_frsize": 4096, "f_blocks": 10, "f_bfree": 5, "f_bavail": 4, "f_files": 0, "f_ffree": 0}


def test_no_recording_is_no_library() -> None:
    answer = rehearse_nvml(Memory(), None)
    assert answer.entries == ()
    assert "libnvidia-ml.so.1" in answer.missing


@pytest.mark.parametrize("devices", [[], [{}]])
def test_an_error_of_the_whole_is_one_of_the_initialisation(devices: list[dict[str, str]]) -> None:
    failed = {"error": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}
    answer = rehearse_nvml(Memory(), failed | {"devices": devices})
    assert answer == Answer((Entry(SYSTEM, "nvmlInit", failed),))


def test_devices_are_counted_as_they_are_recorded() -> None:
    names = [{"nvmlDeviceGetName": "a"}, {"nvmlDeviceGetName": "c"}]
    answer = rehearse_nvml(Memory(), {"system": {"nvmlDeviceGetCount": 3}, "devices": names})
    assert Entry(SYSTEM, "nvmlDeviceGetCount", 2) in answer.entries
    assert Entry(1, "nvmlDeviceGetName", "c") in answer.entries


def test_a_count_that_failed_stays_failed() -> None:
    failed = {"error": "NVML_ERROR_UNKNOWN"}
    answer = rehearse_nvml(Memory(), {"system": {"nvmlDeviceGetCount": failed}, "devices": [{}]})
    assert answer.entries[-1] == Entry(SYSTEM, "nvmlDeviceGetCount", failed)


def test_what_is_not_recorded_is_not_supported_and_field_values_fail_by_their_code() -> None:
    device = {"nvmlDeviceGetFieldValues(230,0)": {"valueType": 1, "value": 0, "nvmlReturn": 15}}
    entries = rehearse_nvml(Memory(), {"devices": [device]}).entries
    assert Entry(0, "nvmlDeviceGetUUID", {"error": "NVML_ERROR_NOT_SUPPORTED"}) in entries
    assert Entry(0, "nvmlDeviceGetFieldValues(230,0)", {"error": "NVML_ERROR_GPU_IS_LOST"}) in entries


def test_a_stall_of_a_device_lets_the_others_be_read() -> None:
    memory = Memory()
    nvml = {"devices": [{"error": "stall"}, {"nvmlDeviceGetName": "b"}]}
    first = rehearse_nvml(memory, nvml)
    assert first.stalled == (Entry(0, "nvmlDeviceGetHandleByIndex"),)
    assert Entry(1, "nvmlDeviceGetName", "b") in first.entries
    second = rehearse_nvml(memory, {"devices": [{"nvmlDeviceGetName": "a"}, {"nvmlDeviceGetName": "b"}]})
    assert second.stalled == ()
    assert {entry.scope for entry in second.entries} == {SYSTEM, 1}


def test_a_hang_keeps_what_was_read_and_ends_all() -> None:
    memory = Memory()
    nvml = {"devices": [{"nvmlDeviceGetName": "a", "nvmlDeviceGetEccMode": {"error": "hang"}}, {}]}
    first = rehearse_nvml(memory, nvml)
    hung = Entry(0, "nvmlDeviceGetEccMode")
    assert first.hung == hung
    assert Entry(0, "nvmlDeviceGetName", "a") in first.entries
    assert {entry.scope for entry in first.entries} == {SYSTEM, 0}
    assert rehearse_nvml(memory, {"devices": [{}]}) == Answer(hung=hung)


def test_a_library_that_stalls_at_once() -> None:
    memory = Memory()
    stalled = Answer((), (Entry(SYSTEM, "nvmlInit"),))
    assert [rehearse_nvml(memory, {"error": "stall"}) for _ in range(2)] == [stalled, stalled]


def test_file_systems() -> None:
    memory = Memory()
    calls = {
        "statvfs(/)": _ROOM,
        "statvfs(/nfs)": {"error": "stall"},
        "statvfs(/data)": {"error": "EIO"},
        "adjtimex": {"status": 0},
    }
    mounts = ("/", "/nfs", "/data", "/new")
    answer = rehearse_statvfs(memory, calls, mounts)
    assert answer.entries == (
        Entry(0, "statvfs(/)", _ROOM),
        Entry(2, "statvfs(/data)", {"error": "EIO"}),
    )
    assert answer.stalled == (Entry(1, "statvfs(/nfs)"),)
    assert rehearse_statvfs(memory, calls, mounts).stalled == ()
    hung = rehearse_statvfs(Memory(), {"statvfs(/data)": {"error": "hang"}}, ("/data",))
    assert hung == Answer(hung=Entry(0, "statvfs(/data)"))
