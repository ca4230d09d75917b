"""Drivers older than the newest: calls that their libraries lack or refuse, as the source reports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nodeguard.model.observation import Observation
from nodeguard.sources.machines import live
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.nvml_results import error_name
from nodeguard.worker.lane import WorkerLane, nvml_lane
from nodeguard.worker.result import LaneResult
from tests.nvml_double import Build, Double
from tests.worker import recordings

# Functions that the bindings published with a driver do not have. Sources: nvidia-ml-py
# 12.535.161 and 12.550.52.
_SINCE_550 = (
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetPlatformInfo",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
)
_LACKS = {535: ("nvmlDeviceGetGpuFabricInfoV", *_SINCE_550), 550: _SINCE_550}
_LAST_FIELD = {535: 197, 550: 200}
_NOT_AVAILABLE = {
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
}
_FIELD = "nvmlDeviceGetFieldValues("

Read = Callable[[Double], tuple[LaneResult, dict[str, Observation]]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a round on a double: the lane's result and the observations of the source."""
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("5c8f1d2e\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()

    def one_round(double: Double) -> tuple[LaneResult, dict[str, Observation]]:
        def lane(**more: Any) -> WorkerLane:
            return nvml_lane(str(double.path), **more)

        monkeypatch.setattr(live, "nvml_lane", lane)
        with LiveMachine(str(tmp_path)) as machine:
            return machine.nvml(), {
                observation.target: observation for observation in NvmlSource().read(machine)
            }

    return one_round


def _errors(answer: LaneResult) -> set[str]:
    return {error_name(entry.result) for entry in answer.results} - {""}


def _older(branch: int, refusal: int) -> dict[str, Any]:
    """Return an H100 as a driver of that branch reports it. refusal: its result of an unknown field."""
    device = {
        call: value
        for call, value in recordings.hopper().items()
        if call.partition("(")[0] not in _LACKS[branch]
    }
    for field in range(_LAST_FIELD[branch] + 1, 280):
        for link in range(18):
            unknown = {"valueType": 0, "value": 0, "nvmlReturn": refusal}
            device[f"{_FIELD}{field},{link})"] = unknown
    device["nvmlDeviceGetTemperature(0)"] = 61
    if branch == 535:
        fabric = {"clusterUuid": [0] * 16, "status": 0, "cliqueId": 0, "state": 3}
        device["nvmlDeviceGetGpuFabricInfo"] = fabric
    return {"system": recordings.SYSTEM, "devices": [device]}


@pytest.mark.parametrize("refusal", [pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED])
@pytest.mark.parametrize("branch", [535, 550])
def test_an_older_driver_is_read_without_an_error(
    nvml_double: Build, read: Read, branch: int, refusal: int
) -> None:
    answer, seen = read(nvml_double(_older(branch, refusal), without=_LACKS[branch]))
    assert (answer.stalled, answer.failed, answer.interrupted) == ((), "", None)
    assert _errors(answer) <= _NOT_AVAILABLE
    assert {
        target: observation.unreadable for target, observation in seen.items() if observation.unreadable
    } == {}
    assert {observation.status for observation in seen.values()} == {"read"}
    gpu = seen["gpu/0000:01:00"].signals
    assert (gpu["gpu.temperature"], gpu["gpu.fabric.state"], gpu["gpu.error"]) == (61, 3, "none")
    assert "gpu.repair.channel_pending" not in gpu


# Structs of a version.


@pytest.mark.parametrize(
    "version", [pynvml.nvmlGpuFabricInfo_v2, pynvml.nvmlGpuFabricInfo_v3], ids=["only v2", "only v3"]
)
def test_a_struct_is_requested_in_the_version_of_the_driver(
    nvml_double: Build, read: Read, version: int
) -> None:
    device = recordings.hopper(links=0)
    device["nvmlDeviceGetGpuFabricInfoV"] = device["nvmlDeviceGetGpuFabricInfoV"] | {"version": version}
    if version == pynvml.nvmlGpuFabricInfo_v3:
        device["nvmlDeviceGetGpuFabricInfoV"]["healthSummary"] = 1
    answer, seen = read(nvml_double({"system": recordings.SYSTEM, "devices": [device]}))
    [result] = [entry.result for entry in answer.results if entry.call == "nvmlDeviceGetGpuFabricInfoV"]
    assert result["version"] == version
    signals = seen["gpu/0000:01:00"].signals
    assert signals["gpu.fabric.state"] == 3
    assert signals.get("gpu.fabric.health_summary") == result.get("healthSummary")


def test_a_driver_with_only_an_older_struct_returns_an_error(nvml_double: Build, read: Read) -> None:
    device = recordings.rack()
    device["nvmlDeviceGetPlatformInfo"] = {
        "version": pynvml.nvmlPlatformInfo_v1,
        "ibGuid": [0x12, *range(15)],
        "rackGuid": [0x34, *range(15)],
        **dict.fromkeys(("chassisPhysicalSlotNumber", "computeSlotIndex", "nodeIndex"), 1),
    }
    answer, seen = read(nvml_double({"system": recordings.SYSTEM, "devices": [device]}))
    [result] = [entry.result for entry in answer.results if entry.call == "nvmlDeviceGetPlatformInfo"]
    assert result == {"error": "NVML_ERROR_ARGUMENT_VERSION_MISMATCH"}
    gpu = seen["gpu/0000:01:00"]
    assert ("gpu.chassis" in gpu.signals, gpu.unreadable) == (False, {})


@pytest.mark.parametrize(
    ("call", "signal"),
    [
        ("nvmlDeviceGetTemperatureV(0)", ""),
        ("nvmlDeviceGetMarginTemperature", "gpu.temperature.limit_distance"),
        ("nvmlDeviceGetRepairStatus", "gpu.repair.channel_pending"),
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", "gpu.memory.unrepairable"),
        ("nvmlDeviceGetSramEccErrorStatus", "gpu.ecc.sram_threshold_exceeded"),
    ],
)
def test_a_struct_of_an_unknown_version_is_missing(
    nvml_double: Build, read: Read, call: str, signal: str
) -> None:
    device = recordings.hopper(links=0) | {call: {"error": "NVML_ERROR_ARGUMENT_VERSION_MISMATCH"}}
    device["nvmlDeviceGetTemperature(0)"] = 60
    _, seen = read(nvml_double({"system": recordings.SYSTEM, "devices": [device]}))
    gpu = seen["gpu/0000:01:00"]
    assert (signal in gpu.signals, gpu.unreadable) == (False, {})
    assert gpu.signals["gpu.temperature"] == (61 if signal else 60)


# Initialising.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
        ("LIB_RM_VERSION_MISMATCH", "the driver's library and kernel module differ in version"),
        ("NO_PERMISSION", "permission denied: run as root"),
        ("OPERATING_SYSTEM", "the operating system denies access to the device"),
        ("TIMEOUT", "the driver timed out"),
        ("IRQ_ISSUE", "NVML_ERROR_IRQ_ISSUE"),
        ("INSUFFICIENT_POWER", "NVML_ERROR_INSUFFICIENT_POWER"),
        ("MEMORY", "NVML_ERROR_MEMORY"),
        ("UNKNOWN", "NVML_ERROR_UNKNOWN"),
    ],
)
def test_each_error_of_the_initialisation_is_reported(
    nvml_double: Build, read: Read, error: str, reason: str
) -> None:
    answer, seen = read(nvml_double({"error": f"NVML_ERROR_{error}"}))
    assert (answer.stalled, answer.failed, answer.missing) == ((), "", "")
    [node] = seen.values()
    assert (node.status, node.detail) == ("failed", reason)
    assert (node.signals["nvml.ready"], node.signals["nvml.error"]) == (False, error)
