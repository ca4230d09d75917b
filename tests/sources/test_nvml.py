from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.model.observation import Observation
from nodeguard.model.target import NODE
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.nvml_table import C2C, GPU, NVLINK
from nodeguard.worker import nvml_calls
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.result import SYSTEM, CallResult
from tests.sources.fake_machine import by_target
from tests.sources.nvml_machine import FIRST, HANDLE, LOST, SECOND, Answered, Gpus, read
from tests.sources.test_nvml_results import JSON, UNSUPPORTED
from tests.worker import recordings
from tests.worker.recordings import hopper


@pytest.mark.parametrize("pci", [LOST, {"busId": "nonsense"}, "nonsense", {"busId": 7}])
def test_gpu_without_a_pci_address_has_its_index(pci: Any) -> None:
    assert "gpu/index-0" in read({**hopper(), "nvmlDeviceGetPciInfo_v3": pci})


def test_gpus_that_give_the_same_address_have_their_index() -> None:
    """No GPU is missing on the bus since another one has its address."""
    call = "nvmlDeviceGetPciInfo_v3"
    observations = read(hopper(), {**hopper(1), call: hopper()[call]}, hopper(2))
    gpus = {target for target in observations if target.startswith("gpu/") and target.count("/") == 1}
    assert {FIRST, SECOND}.isdisjoint(gpus)
    assert gpus >= {"gpu/index-0", "gpu/index-1"}
    assert observations[NODE].unlisted == {"gpu": "NVML gives no PCI address of its own for GPU 0, 1"}


def test_pci_address_is_read_by_the_older_call_name() -> None:
    device = hopper()
    device["nvmlDeviceGetPciInfo"] = device.pop("nvmlDeviceGetPciInfo_v3")
    assert FIRST in read(device)


def test_a_gpu_without_handle_is_counted_and_hides_no_other() -> None:
    observations = read(LOST, hopper(1, links=0))
    assert set(observations) == {NODE, SECOND}
    node = observations[NODE].signals
    assert (node["gpu.handles_refused"], node["gpu.handle_error"]) == (1, "GPU_IS_LOST")
    assert observations[NODE].status == "read"


@pytest.mark.parametrize("error", ["NO_PERMISSION", "OPERATING_SYSTEM"])
def test_hidden_gpu_is_counted_separately(error: str) -> None:
    node = read({"error": f"NVML_ERROR_{error}"}, hopper(1, links=0))[NODE]
    assert (node.signals["gpu.handles_hidden"], node.signals["gpu.handle_error"]) == (1, "none")
    assert "gpu.handles_refused" not in node.signals
    assert "gpu.handles_refused" in node.unreadable


def test_a_stall_keeps_what_was_read_before_and_leaves_the_rest_unread() -> None:
    stalling = {**hopper(), "nvmlDeviceGetUtilizationRates": {"error": "stall"}}
    observations = read(stalling, hopper(1))
    silent = observations[FIRST]
    assert (silent.status, silent.detail) == ("hung", "nvmlDeviceGetUtilizationRates gave no answer")
    assert (silent.signals["gpu.answers"], silent.signals["gpu.unanswered"]) == (
        False,
        "nvmlDeviceGetUtilizationRates",
    )
    assert silent.signals["gpu.row_remap.pending"] is True
    assert silent.unreadable["gpu.temperature"] == "an earlier call gave no answer"
    assert "gpu.nvlink.active" not in silent.signals
    node = observations[NODE]
    assert (node.status, node.signals["nvml.answers"], node.signals["nvml.hung"]) == ("read", False, False)
    assert node.signals["nvml.unanswered"] == "nvmlDeviceGetUtilizationRates of GPU 0000:01:00"
    assert (observations[SECOND].status, observations[SECOND].unreadable) == ("read", {})


def test_unsupported_call_before_a_stall_is_not_applicable() -> None:
    stalling = {
        **hopper(),
        "nvmlDeviceGetModuleId": UNSUPPORTED,
        "nvmlDeviceGetUtilizationRates": {"error": "stall"},
    }
    assert "gpu.module" not in read(stalling)[FIRST].unreadable


def test_skipped_gpu_keeps_its_target_and_its_links_are_unread() -> None:
    source, machine = NvmlSource(), Gpus(hopper(links=2), hopper(1, links=2))
    whole = by_target(source, machine)
    assert machine.document is not None
    machine.document["devices"][1]["nvmlDeviceGetEccMode"] = {"error": "stall"}
    for _ in range(3):
        observations = by_target(source, machine)
        assert set(observations) == set(whole)
        assert observations[SECOND].status == "hung"
        assert observations[f"{SECOND}/nvlink/0"].status == "hung"
        assert observations[f"{FIRST}/nvlink/0"].status == "read"


def test_hang_ends_the_round_as_incomplete() -> None:
    source = NvmlSource()
    machine = Gpus(hopper(links=0), {**hopper(1), "nvmlDeviceGetEccMode": {"error": "hang"}}, hopper(2))
    first = by_target(source, machine)
    assert set(first) == {NODE, FIRST, SECOND}
    node = first[NODE]
    assert node.status == "hung"
    assert node.detail == "nvmlDeviceGetEccMode of GPU 0000:02:00 does not return, not even on SIGKILL"
    assert (node.signals["nvml.hung"], node.signals["nvml.answers"]) == (True, False)
    assert "nvml.ready" not in node.signals
    assert "gpu.handles_refused" not in node.signals
    assert first[SECOND].signals["gpu.name"] == "NVIDIA H100 80GB HBM3"
    assert first[SECOND].status == "hung"
    assert first[FIRST].status == "read"
    later = by_target(source, machine)
    assert set(later) == {NODE, SECOND}
    assert later[NODE].detail == node.detail


def test_stall_of_the_whole_driver() -> None:
    document = {**recordings.SYSTEM, "nvmlSystemGetNVMLVersion": {"error": "stall"}}
    observations = by_target(NvmlSource(), Gpus(hopper(), system=document))
    assert set(observations) == {NODE}
    assert (observations[NODE].status, observations[NODE].detail) == (
        "hung",
        "nvmlSystemGetNVMLVersion gave no answer",
    )
    assert observations[NODE].signals["nvml.hung"] is False


# The library and the driver.


def test_missing_nvml_library_is_reported_as_absent() -> None:
    machine = Gpus()
    machine.document = None
    observations = by_target(NvmlSource(), machine)
    assert observations[NODE].status == "absent"
    assert observations[NODE].signals == {"nvml.library": False}
    assert "libnvidia-ml.so.1" in observations[NODE].detail


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
        ("LIB_RM_VERSION_MISMATCH", "the driver's library and kernel module differ in version"),
        ("UNKNOWN", "NVML_ERROR_UNKNOWN"),
    ],
)
def test_failed_nvml_initialization_is_reported(error: str, reason: str) -> None:
    observations = read(hopper(), error=f"NVML_ERROR_{error}")
    assert set(observations) == {NODE}
    assert (observations[NODE].status, observations[NODE].detail) == ("failed", reason)
    signals = observations[NODE].signals
    assert (signals["nvml.ready"], signals["nvml.error"], signals["nvml.library"]) == (False, error, True)
    assert "gpu.handles_refused" not in signals


def test_failed_gpu_count_fails_the_reading() -> None:
    system = {**recordings.SYSTEM, "nvmlDeviceGetCount": {"error": "NVML_ERROR_UNKNOWN"}}
    observations = read(hopper(), system=system)
    assert (observations[NODE].status, observations[NODE].detail) == (
        "failed",
        "nvmlDeviceGetCount: NVML_ERROR_UNKNOWN",
    )


def test_interrupted_round_omits_calls_that_it_did_not_make() -> None:
    slow = CallResult(1, HANDLE)
    pci = (0, "nvmlDeviceGetPciInfo_v3", {"busId": "00000000:01:00.0"})
    system = ((SYSTEM, "nvmlDeviceGetCount", 4), pci)
    observations = by_target(NvmlSource(), Answered(*system, stalled=(slow,), interrupted=slow))
    assert (observations[NODE].status, observations[NODE].signals["nvml.answers"]) == ("hung", False)
    assert observations[NODE].detail == f"there was no time for the calls after {HANDLE} of GPU index-1"
    assert observations.keys() == {NODE, FIRST, "gpu/index-1"}
    observations = by_target(NvmlSource(), Answered(*system, interrupted=slow))
    assert (observations[NODE].status, observations[NODE].signals["nvml.ready"]) == ("hung", True)
    assert "nvml.answers" not in observations[NODE].signals
    assert observations.keys() == {NODE, FIRST}
    observations = by_target(NvmlSource(), Answered(interrupted=CallResult(SYSTEM, "nvmlInit")))
    assert not observations[NODE].signals.keys() & {"nvml.answers", "nvml.ready", "nvml.error"}


def test_internal_failure_is_not_reported_as_a_driver_fault() -> None:
    observations = by_target(NvmlSource(), Answered(failed="no process"))
    assert observations == {NODE: Observation("nvml", NODE, "failed", detail="no process")}
    observations = by_target(
        NvmlSource(), Answered((0, "nvmlDeviceGetPciInfo", {"busId": "00000000:01:00.0"}), failed="no")
    )
    assert (observations[NODE].status, observations[NODE].detail) == ("failed", "no")
    assert FIRST in observations


def test_confidential_computing() -> None:
    system = {
        **recordings.SYSTEM,
        "nvmlSystemGetConfComputeState": {"ccFeature": 1},
        "nvmlSystemGetConfComputeGpusReadyState": 0,
    }
    signals = read(system=system)[NODE].signals
    assert (signals["nvml.confidential"], signals["nvml.confidential_ready"]) == (True, False)
    for state in (UNSUPPORTED, {}, {"ccFeature": 63}, {"ccFeature": (1 << 64) - 1}):
        system["nvmlSystemGetConfComputeState"] = state
        assert "nvml.confidential" not in read(system=system)[NODE].signals


# Modes, links and events.


def test_every_nvml_call_is_used() -> None:
    """Any call may hang: none is asked in vain."""
    rows = {call for row in (*GPU, *NVLINK, *C2C) for call, _ in row.calls}
    of_itself = {
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetSerial",
    }
    asked = {call for row in (*nvml_calls.IDENTITY, *nvml_calls.HEALTH) for call in row.split(" | ")}
    assert asked - rows == of_itself
    fields = {int(match[1]) for call in rows if (match := re.match(r"fields\((\d+)", call))}
    assert fields == {
        nvml_calls.RECOVERY_ACTION, nvml_calls.NVLINK_COUNT, nvml_calls.C2C_COUNT, nvml_calls.C2C_STATUS,
        *nvml_calls.IDENTITY_FIELDS, *nvml_calls.HEALTH_FIELDS, *nvml_calls.LINK_FIELDS,
    }  # fmt: skip


def test_xid_event_is_reported_once_for_its_gpu() -> None:
    source, machine = NvmlSource(), Gpus(hopper(links=0), hopper(1, links=0))
    machine.events = (DeviceEvent(1, 8, 79), DeviceEvent(0, 1, 4), DeviceEvent(7, 8, 79))
    [event] = [event for observation in source.read(machine) for event in observation.events]
    assert (event.signal, event.fields["xid"], event.at) == ("gpu.xid.line", 79, machine.now().mono)
    machine.events = (DeviceEvent(1, 8, 79),)
    assert [observation.target for observation in source.read(machine) if observation.events] == [SECOND]
    assert not any(observation.events for observation in source.read(machine))


def test_event_has_its_own_address_and_time() -> None:
    """The worker was restarted meanwhile, and the first GPU of two is no longer counted."""
    source, machine = NvmlSource(), Gpus(hopper(1, links=0))
    machine.events = (DeviceEvent(0, 8, 79, "00000000:01:00.0", 12.5),)
    [observation] = [observation for observation in source.read(machine) if observation.events]
    assert (observation.target, observation.events[0].at) == (FIRST, 12.5)


def test_events_are_reported_when_nothing_else_can_be_read() -> None:
    source, machine = NvmlSource(), Answered(failed="the worker process cannot be started")
    machine.events = (DeviceEvent(0, 8, 79, "00000000:01:00.0", 12.5),)
    assert [observation.target for observation in source.read(machine) if observation.events] == [FIRST]


# Whatever a driver or a recording may say.


SYSTEM_CALLS = (*recordings.SYSTEM, "nvmlInit", "nvmlDeviceGetCount")
DEVICE_CALLS = (HANDLE, *hopper(links=2))


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(SYSTEM_CALLS), JSON, max_size=3),
    st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from(DEVICE_CALLS)), JSON, max_size=6),
    st.lists(st.builds(CallResult, st.integers(SYSTEM, 2), st.sampled_from(DEVICE_CALLS)), max_size=2),
    st.none() | st.builds(CallResult, st.integers(SYSTEM, 2), st.sampled_from(DEVICE_CALLS)),
)
def test_any_nvml_result_gives_valid_observations(
    system: dict[str, Any],
    devices: dict[tuple[int, str], Any],
    stalled: list[CallResult],
    hung: CallResult | None,
) -> None:
    entries = [(SYSTEM, call, result) for call, result in system.items()]
    entries += [(scope, call, result) for (scope, call), result in devices.items()]
    machine = Answered(*entries, stalled=tuple(stalled), hung=hung)
    source = NvmlSource()
    for _ in range(2):
        for observation in source.read(machine):
            assert observation.signals.keys() | observation.unreadable.keys() <= source.signals.keys()
            assert not observation.signals.keys() & observation.unreadable.keys()
