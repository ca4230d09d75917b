from __future__ import annotations

from typing import Any

import pytest

from nodeguard.model.hardware import Hardware
from nodeguard.model.target import NODE
from nodeguard.sources.nvml import NvmlSource
from tests.sources.fake_machine import by_target
from tests.sources.nvml_machine import FIRST, LOST, SECOND, Gpus, of_gpu, read
from tests.sources.test_nvml_results import DENIED, UNSUPPORTED
from tests.worker.recordings import hopper, rack, value

SLOT = {"chassisSerialNumber": "1820125 ", "slotNumber": 5, "trayIndex": 4}


@pytest.mark.parametrize(
    ("calls", "hardware"),
    [
        ({}, Hardware(0)),
        ({"nvmlDeviceGetSerial": "1650522100005"}, Hardware(0, serial="1650522100005")),
        ({"nvmlDeviceGetBoardPartNumber": "692-2G520"}, Hardware(0, board_part_number="692-2G520")),
        ({"nvmlDeviceGetModuleId": 0}, Hardware(0, module_id=0)),
        ({"nvmlDeviceGetModuleId": 0xFFFFFFFF}, Hardware(0)),
        ({"nvmlDeviceGetModuleId": True}, Hardware(0)),
        ({"nvmlDeviceGetModuleId": UNSUPPORTED, "nvmlDeviceGetSerial": ["x"]}, Hardware(0)),
        ({"nvmlDeviceGetPlatformInfo": SLOT}, Hardware(0, slot="slot 5, tray 4 of chassis 1820125")),
        ({"nvmlDeviceGetPlatformInfo": {**SLOT, "chassisSerialNumber": ""}}, Hardware(0)),
        ({"nvmlDeviceGetPlatformInfo": {"chassisSerialNumber": "1820125"}}, Hardware(0)),
        ({"nvmlDeviceGetPlatformInfo": 7}, Hardware(0)),
    ],
)
def test_the_hardware_of_a_gpu_has_the_names_that_nvml_returns(
    calls: dict[str, Any], hardware: Hardware
) -> None:
    component = of_gpu({"nvmlDeviceGetUUID": "GPU-1", **calls}).component
    assert component is not None
    assert component.hardware == hardware


def test_gpu_has_its_component_and_its_links() -> None:
    observations = read(hopper(), hopper(1, links=2))
    assert set(observations) == {
        NODE,
        FIRST,
        SECOND,
        *(f"{FIRST}/nvlink/{link}" for link in range(18)),
        *(f"{SECOND}/nvlink/{link}" for link in range(2)),
    }
    assert not [observation.unreadable for observation in observations.values() if observation.unreadable]
    assert {observation.status for observation in observations.values()} == {"read"}
    whole = observations[FIRST]
    assert whole.component is not None
    assert (whole.component.id, whole.component.model) == (
        "GPU-00000000-0000-4000-8000-000000000000",
        "NVIDIA H100 80GB HBM3",
    )
    expected = {
        "gpu.ecc.enabled": True,
        "gpu.row_remap.uncorrected": 1,
        "gpu.row_remap.pending": True,
        "gpu.row_remap.failed": False,
        "gpu.retired_pages.uncorrected": 2,
        "gpu.retired_pages.total": 2,
        "gpu.clocks.hw_thermal": True,
        "gpu.clocks.hw_slowdown": False,
        "gpu.utilization": 0.97,
        "gpu.temperature": 61.0,
        "gpu.temperature.limit_distance": -1.0,
        "gpu.power.limit": 700.0,
        "gpu.pcie.width": 8,
        "gpu.pcie.width_max": 16,
        "gpu.processes": 2,
        "gpu.nvlink.count": 18,
        "gpu.nvlink.active": 17,
        "gpu.error": "none",
        "gpu.answers": True,
    }
    assert {name: whole.signals.get(name) for name in expected} == expected
    assert observations[f"{FIRST}/nvlink/1"].signals == {"nvlink.active": False}
    assert observations[f"{FIRST}/nvlink/3"].signals["nvlink.replays"] == 3
    node = observations[NODE].signals
    assert (node["nvml.driver_version"], node["nvml.ready"], node["nvml.error"]) == (
        "580.95.05",
        True,
        "none",
    )
    assert (node["nvml.answers"], node["nvml.hung"], node["gpu.handles_refused"]) == (True, False, 0)


def test_a_gpu_of_a_rack_counts_its_links_to_the_cpu() -> None:
    whole = read(rack())[FIRST]
    assert (whole.signals["gpu.c2c.count"], whole.signals["gpu.c2c.active"]) == (2, 1)
    assert (whole.signals["gpu.chassis"], whole.signals["gpu.tray"]) == ("1820125000000", 0)
    assert whole.signals["gpu.fabric.health_summary"] == 3
    assert whole.signals["gpu.fabric.clique"] == 32766


def test_gpu_without_any_result_keeps_its_target_and_is_lost() -> None:
    source, machine = NvmlSource(), Gpus(hopper(), hopper(1))
    by_target(source, machine)
    assert machine.document is not None
    machine.document["devices"][1] = dict.fromkeys(hopper(1), LOST)
    observations = by_target(source, machine)
    assert observations[SECOND].signals["gpu.error"] == "GPU_IS_LOST"
    assert observations[SECOND].unreadable["gpu.temperature"] == "the GPU is lost"
    assert observations[SECOND].component is None
    assert observations[FIRST].signals["gpu.error"] == "none"


def test_worst_of_several_errors_is_reported() -> None:
    vague, power = ({"error": f"NVML_ERROR_{error}"} for error in ("UNKNOWN", "INSUFFICIENT_POWER"))
    node = read(vague, power, LOST, {"error": "NVML_ERROR_NO_PERMISSION"})[NODE]
    assert (node.signals["gpu.handles_refused"], node.signals["gpu.handle_error"]) == (3, "GPU_IS_LOST")
    assert (node.signals["gpu.handles_hidden"], node.unreadable) == (1, {})
    assert read(vague, power)[NODE].signals["gpu.handle_error"] == "INSUFFICIENT_POWER"


@pytest.mark.parametrize("error", ["TIMEOUT", "IRQ_ISSUE", "CORRUPTED_INFOROM", "INSUFFICIENT_POWER"])
def test_error_of_the_whole_gpu_is_its_error(error: str) -> None:
    assert of_gpu({"nvmlDeviceGetEccMode": {"error": f"NVML_ERROR_{error}"}}).signals["gpu.error"] == error


def test_unknown_error_applies_to_the_gpu_if_most_calls_return_it() -> None:
    vague = {"error": "NVML_ERROR_UNKNOWN"}
    calls = ("nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetPersistenceMode")
    assert of_gpu({calls[0]: vague}).signals["gpu.error"] == "none"
    assert of_gpu(dict.fromkeys(calls, vague)).signals["gpu.error"] == "UNKNOWN"


def test_required_reset_is_reported_as_the_error_of_the_gpu() -> None:
    required = {"error": "NVML_ERROR_RESET_REQUIRED"}
    assert of_gpu({"nvmlDeviceGetEccMode": required}).signals["gpu.error"] == "RESET_REQUIRED"


def test_change_of_mig_mode_starts_a_new_counter_epoch() -> None:
    assert read(hopper())[FIRST].epoch != read({**hopper(), "nvmlDeviceGetMigMode": [1, 1]})[FIRST].epoch


def test_an_nvlink_that_refuses_leaves_the_count_unknown() -> None:
    device = {**hopper(links=3), "nvmlDeviceGetNvLinkState(2)": DENIED}
    observations = read(device)
    assert observations[f"{FIRST}/nvlink/2"].unreadable["nvlink.active"] == "permission denied: run as root"
    assert observations[FIRST].unreadable["gpu.nvlink.active"] == "permission denied: run as root"
    assert "gpu.nvlink.active" not in observations[FIRST].signals


@pytest.mark.parametrize("error", ["RESET_REQUIRED", "UNKNOWN", "TIMEOUT"])
def test_failing_links_without_a_link_count_do_not_exist(error: str) -> None:
    failed = {"error": f"NVML_ERROR_{error}"}
    pci = hopper()["nvmlDeviceGetPciInfo_v3"]
    device = dict.fromkeys(hopper(), failed) | {"nvmlDeviceGetPciInfo_v3": pci}
    observations = read(device)
    assert observations.keys() == {NODE, FIRST}
    assert "gpu.nvlink.active" in observations[FIRST].unreadable


def test_unread_link_to_the_cpu_does_not_count_as_inactive() -> None:
    unknown = {**rack(), "nvmlDeviceGetFieldValues(171,0)": UNSUPPORTED}
    del unknown["nvmlDeviceGetFieldValues(171,1)"]
    observations = read(unknown)[FIRST]
    assert "gpu.c2c.active" not in observations.signals
    assert observations.unreadable == {}
    refused = read({**rack(), "nvmlDeviceGetFieldValues(171,0)": DENIED})[FIRST]
    assert refused.unreadable == {"gpu.c2c.active": "permission denied: run as root"}


def test_implausible_link_count_has_no_active_count() -> None:
    observations = of_gpu({"nvmlDeviceGetFieldValues(170,0)": value(1 << 60)})
    assert observations.signals["gpu.c2c.count"] == 1 << 60
    assert "gpu.c2c.active" not in observations.signals
