"""The real worker process, with unmodified pynvml, on the double of libnvidia-ml."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeguard.worker.lane import WorkerLane, nvml_lane
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.nvml_calls import LINK_FIELDS, LINK_POWER
from nodeguard.worker.progress import Deadlines
from nodeguard.worker.replay import replay_nvml
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult
from tests.nvml_double import Build, Double
from tests.waiting import PATIENCE
from tests.worker import recordings

_SHORT = Deadlines(call=0.5, first=PATIENCE, grace=PATIENCE)


@contextmanager
def _lane(double: Double) -> Iterator[WorkerLane]:
    with nvml_lane(str(double.path), deadlines=_SHORT) as lane:
        yield lane


def _results(answer: LaneResult, scope: int = 0) -> dict[str, Any]:
    return {entry.call: entry.result for entry in answer.results if entry.scope == scope}


EVERYTHING: dict[str, Any] = {
    "system": recordings.SYSTEM,
    "devices": [
        recordings.hopper(),
        {"error": "NVML_ERROR_GPU_IS_LOST"},
        recordings.rack(),
        {
            "nvmlDeviceGetUUID": {"error": "NVML_ERROR_GPU_IS_LOST"},
            "nvmlDeviceGetRetiredPages(1)": [1, 2, 3],
            "nvmlDeviceGetTemperature(0)": 40,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 1 << 40,
            "nvmlDeviceGetGpuFabricInfo": {
                "clusterUuid": [0] * 16,
                "status": 3,
                "cliqueId": 0,
                "state": 2,
            },
            "nvmlDeviceGetFieldValues(230,0)": {"valueType": 1, "value": 0, "nvmlReturn": 16},
        },
    ],
}


def test_live_and_replay_read_the_same(nvml_double: Build) -> None:
    replayed = replay_nvml(LaneState(), EVERYTHING)
    with _lane(nvml_double(EVERYTHING)) as lane:
        assert lane.round() == replayed
        assert lane.round() == replayed, "a long-lived session reads what a new one does"


def test_replay_returns_the_recorded_results() -> None:
    answer = replay_nvml(LaneState(), EVERYTHING)
    for index in (0, 2):
        recorded = EVERYTHING["devices"][index]
        assert isinstance(recorded, dict)
        assert {call: _results(answer, index)[call] for call in recorded} == recorded
    assert _results(answer, 1) == {"nvmlDeviceGetHandleByIndex": {"error": "NVML_ERROR_GPU_IS_LOST"}}
    assert _results(answer, SYSTEM) == {**recordings.SYSTEM, "nvmlDeviceGetCount": 4}


@pytest.mark.parametrize(
    "name", ["NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "NVML_ERROR_UNKNOWN"]
)
def test_a_driver_that_does_not_initialise_is_a_result_and_is_tried_again(
    nvml_double: Build, name: str
) -> None:
    double = nvml_double({"error": name})
    with _lane(double) as lane:
        assert lane.round() == LaneResult((CallResult(SYSTEM, "nvmlInit", {"error": name}),))
        double.answer({"system": recordings.SYSTEM, "devices": [recordings.hopper()]})
        assert _results(lane.round())["nvmlDeviceGetName"] == "NVIDIA H100 80GB HBM3"


def test_a_driver_that_is_not_loaded_costs_no_process_each_round(nvml_double: Build) -> None:
    with _lane(nvml_double({"error": "NVML_ERROR_DRIVER_NOT_LOADED"})) as lane:
        workers = [(lane.round(), lane._worker)[1] for _ in range(3)]
    assert workers[0] is workers[1] is workers[2] is not None


def test_a_broken_session_is_started_again(nvml_double: Build) -> None:
    lost = {"nvmlDeviceGetUUID": {"error": "NVML_ERROR_UNINITIALIZED"}}
    double = nvml_double({"system": recordings.SYSTEM, "devices": [lost]})
    with _lane(double) as lane:
        assert _results(lane.round())["nvmlDeviceGetUUID"] == {"error": "NVML_ERROR_UNINITIALIZED"}
        double.answer({"error": "NVML_ERROR_DRIVER_NOT_LOADED"})
        answer = lane.round()
        assert answer.results == (CallResult(SYSTEM, "nvmlInit", {"error": "NVML_ERROR_DRIVER_NOT_LOADED"}),)


def test_unchanged_groups_keep_their_results(nvml_double: Build) -> None:
    double = nvml_double({"system": recordings.SYSTEM, "devices": [recordings.hopper()]})
    with _lane(double) as lane:
        first = lane.round()
        colder = recordings.hopper() | {
            "nvmlDeviceGetTemperatureV(0)": 21,
            "nvmlDeviceGetUUID": "not asked",
            "nvmlDeviceGetNvLinkState(3)": 0,
        }
        double.answer({"system": recordings.SYSTEM, "devices": [colder]})
        results, before = _results(lane.round()), _results(first)
    assert results.keys() == before.keys() - {
        f"nvmlDeviceGetFieldValues({field},3)" for field in LINK_FIELDS if field != LINK_POWER
    }
    assert {call for call, result in results.items() if result != before[call]} == {
        "nvmlDeviceGetTemperatureV(0)",
        "nvmlDeviceGetNvLinkState(3)",
    }


def test_devices_are_counted_in_each_round(nvml_double: Build) -> None:
    double = nvml_double(
        {"system": recordings.SYSTEM, "devices": [recordings.hopper(0), recordings.hopper(1)]}
    )
    with _lane(double) as lane:
        assert _results(lane.round(), 1)
        double.answer({"system": recordings.SYSTEM, "devices": [recordings.hopper(0)]})
        answer = lane.round()
        assert _results(answer, 0)
        assert not _results(answer, 1)


def test_an_older_driver_lacks_functions(nvml_double: Build) -> None:
    gone = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetRepairStatus")
    device = recordings.hopper() | {"nvmlDeviceGetTemperature(0)": 44}
    with _lane(nvml_double({"system": recordings.SYSTEM, "devices": [device]}, without=gone)) as lane:
        results = _results(lane.round())
    absent = {"error": "NVML_ERROR_FUNCTION_NOT_FOUND"}
    assert [results["nvmlDeviceGetTemperatureV(0)"], results["nvmlDeviceGetTemperature(0)"]] == [absent, 44]
    assert results["nvmlDeviceGetRepairStatus"] == absent
    assert results["nvmlDeviceGetGpuFabricInfo"] == {"error": "NVML_ERROR_NOT_SUPPORTED"}


def test_without_the_process_list_of_this_version_the_function_is_not_there(nvml_double: Build) -> None:
    call = "nvmlDeviceGetComputeRunningProcesses"
    double = nvml_double({"system": recordings.SYSTEM, "devices": [{}]}, without=(f"{call}_v3",))
    with _lane(double) as lane:
        assert _results(lane.round())[call] == {"error": "NVML_ERROR_FUNCTION_NOT_FOUND"}


def test_a_text_of_invalid_utf8_is_read(nvml_double: Build) -> None:
    double = nvml_double({"system": recordings.SYSTEM, "devices": [{"nvmlDeviceGetSerial": "1234\udcff"}]})
    with _lane(double) as lane:
        assert _results(lane.round())["nvmlDeviceGetSerial"] == "1234\ufffd"


def test_a_hung_call_affects_only_its_device(nvml_double: Build) -> None:
    stuck = recordings.hopper(1) | {"nvmlDeviceGetRemappedRows": {"error": "stall"}}
    nvml = {"system": recordings.SYSTEM, "devices": [recordings.hopper(0), stuck, recordings.hopper(2)]}
    memory = LaneState()
    with _lane(nvml_double(nvml)) as lane:
        first, second = lane.round(), lane.round()
        assert first == replay_nvml(memory, nvml)
        assert second == replay_nvml(memory, nvml)
    assert first.stalled == (CallResult(1, "nvmlDeviceGetRemappedRows"),)
    assert _results(first, 1)["nvmlDeviceGetUUID"] == stuck["nvmlDeviceGetUUID"], "what was read before stays"
    assert _results(first, 2) == _results(second, 2)
    assert (second.stalled, second.skipped) == ((), first.stalled)
    assert not _results(second, 1), "its scope is skipped"


def test_a_hung_field_stalls_its_batch(nvml_double: Build) -> None:
    stuck = recordings.hopper() | {"nvmlDeviceGetFieldValues(161,2)": {"error": "stall"}}
    nvml = {"system": recordings.SYSTEM, "devices": [stuck]}
    with _lane(nvml_double(nvml)) as lane:
        answer = lane.round()
    assert answer == replay_nvml(LaneState(), nvml)
    assert answer.stalled == (CallResult(0, "nvmlDeviceGetFieldValues"),)


def test_rest_ends_with_another_driver(nvml_double: Build) -> None:
    stuck = recordings.hopper() | {"nvmlDeviceGetEccMode": {"error": "stall"}}
    double = nvml_double({"system": recordings.SYSTEM, "devices": [stuck]})
    with _lane(double) as lane:
        assert lane.round().stalled
        newer = recordings.SYSTEM | {"nvmlSystemGetDriverVersion": "590.1"}
        double.answer({"system": newer, "devices": [recordings.hopper()]})
        assert not _results(lane.round()), "the round that finds the new driver still skips the scope"
        assert _results(lane.round())["nvmlDeviceGetEccMode"] == [1, 1]


def test_a_crash_of_the_library_affects_only_its_device(nvml_double: Build) -> None:
    bad = recordings.hopper() | {"nvmlDeviceGetRepairStatus": {"error": "crash"}}
    nvml = {"system": recordings.SYSTEM, "devices": [bad, recordings.hopper(1)]}
    with _lane(nvml_double(nvml)) as lane:
        answer = lane.round()
    died = {"error": "worker died: signal 6"}
    assert answer.stalled == (CallResult(0, "nvmlDeviceGetRepairStatus", died),)
    assert _results(answer, 1)["nvmlDeviceGetModuleId"] == 1


@pytest.mark.parametrize("root", ["", "host"])
def test_the_library_is_found_in_a_driver_container(nvml_double: Build, tmp_path: Path, root: str) -> None:
    directory = tmp_path / "host/run/nvidia/driver/usr/lib64"
    nvml_double({"system": recordings.SYSTEM, "devices": [recordings.hopper()]}, directory=directory)
    with nvml_lane(root=str(tmp_path / root)) as lane:
        answer = lane.round()
    if root:
        assert _results(answer)["nvmlDeviceGetUUID"]
    else:
        assert "libnvidia-ml.so.1" in answer.missing


def test_an_invalid_library_is_missing(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    with nvml_lane(str(tmp_path / "libnvidia-ml.so.1")) as lane:
        assert lane.round() == lane.round()
        missing = lane.round().missing
    assert str(tmp_path) in missing
    assert missing.endswith("install the NVIDIA driver, or pass the path of libnvidia-ml.so.1")
