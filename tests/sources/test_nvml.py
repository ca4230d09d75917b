from __future__ import annotations

import math
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
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult
from tests.sources.fake_machine import FakeMachine, by_slot
from tests.sources.test_nvml_results import DENIED, JSON, UNSUPPORTED
from tests.worker import recordings
from tests.worker.recordings import hopper, rack, value

FIRST, SECOND = "gpu/0000:01:00", "gpu/0000:02:00"
LOST = {"error": "NVML_ERROR_GPU_IS_LOST"}
HANDLE = "nvmlDeviceGetHandleByIndex"


class Gpus(FakeMachine):
    """A machine with the NVML results of a bundle's nvml.json. events: are returned once."""

    def __init__(self, *devices: dict[str, Any], **more: Any) -> None:
        super().__init__()
        self.document: dict[str, Any] | None = {"system": recordings.SYSTEM, "devices": list(devices), **more}
        self.memory = LaneState()
        self.events: tuple[DeviceEvent, ...] = ()

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        return replay_nvml(self.memory, self.document)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        events, self.events = self.events, ()
        return events


class Answered(Gpus):
    """A machine with this NVML result."""

    def __init__(self, *entries: tuple[int, str, Any], **more: Any) -> None:
        super().__init__()
        self.answer = LaneResult(tuple(CallResult(*entry) for entry in entries), **more)

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        assert self.answer is not None
        return self.answer


def read(*devices: dict[str, Any], **more: Any) -> dict[str, Observation]:
    return by_slot(NvmlSource(), Gpus(*devices, **more))


def of_gpu(calls: dict[str, Any]) -> Observation:
    """What is read of a GPU that answers these calls and no other."""
    pci = {"nvmlDeviceGetPciInfo_v3": {"busId": "00000000:01:00.0"}}
    return by_slot(NvmlSource(), Answered(*((0, call, result) for call, result in {**pci, **calls}.items())))[
        FIRST
    ]


def test_a_gpu_its_part_and_its_links() -> None:
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


# GPUs that are lost, and those that fall silent.


def test_gpu_without_any_result_keeps_its_target_and_is_lost() -> None:
    source, machine = NvmlSource(), Gpus(hopper(), hopper(1))
    by_slot(source, machine)
    assert machine.document is not None
    machine.document["devices"][1] = dict.fromkeys(hopper(1), LOST)
    observations = by_slot(source, machine)
    assert observations[SECOND].signals["gpu.error"] == "GPU_IS_LOST"
    assert observations[SECOND].unreadable["gpu.temperature"] == "the GPU is lost"
    assert observations[SECOND].component is None
    assert observations[FIRST].signals["gpu.error"] == "none"


@pytest.mark.parametrize("pci", [LOST, {"busId": "nonsense"}, "nonsense", {"busId": 7}])
def test_gpu_without_a_pci_address_has_its_index(pci: Any) -> None:
    assert "gpu/index-0" in read({**hopper(), "nvmlDeviceGetPciInfo_v3": pci})


def test_an_older_driver_tells_the_address_by_the_older_name() -> None:
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
def test_a_gpu_that_may_not_be_looked_at_is_counted_apart(error: str) -> None:
    node = read({"error": f"NVML_ERROR_{error}"}, hopper(1, links=0))[NODE]
    assert (node.signals["gpu.handles_hidden"], node.signals["gpu.handle_error"]) == (1, "none")
    assert "gpu.handles_refused" not in node.signals
    assert "gpu.handles_refused" in node.unreadable


def test_worst_of_several_errors_is_reported() -> None:
    vague, power = ({"error": f"NVML_ERROR_{error}"} for error in ("UNKNOWN", "INSUFFICIENT_POWER"))
    node = read(vague, power, LOST, {"error": "NVML_ERROR_NO_PERMISSION"})[NODE]
    assert (node.signals["gpu.handles_refused"], node.signals["gpu.handle_error"]) == (3, "GPU_IS_LOST")
    assert (node.signals["gpu.handles_hidden"], node.unreadable) == (1, {})
    assert read(vague, power)[NODE].signals["gpu.handle_error"] == "INSUFFICIENT_POWER"


@pytest.mark.parametrize("error", ["TIMEOUT", "IRQ_ISSUE", "CORRUPTED_INFOROM", "INSUFFICIENT_POWER"])
def test_error_of_the_whole_gpu_is_its_error(error: str) -> None:
    assert of_gpu({"nvmlDeviceGetEccMode": {"error": f"NVML_ERROR_{error}"}}).signals["gpu.error"] == error


def test_an_error_that_says_little_is_the_gpu_s_where_most_calls_meet_it() -> None:
    vague = {"error": "NVML_ERROR_UNKNOWN"}
    calls = ("nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetPersistenceMode")
    assert of_gpu({calls[0]: vague}).signals["gpu.error"] == "none"
    assert of_gpu(dict.fromkeys(calls, vague)).signals["gpu.error"] == "UNKNOWN"


def test_a_reset_that_is_due_is_the_gpu_s_error() -> None:
    required = {"error": "NVML_ERROR_RESET_REQUIRED"}
    assert of_gpu({"nvmlDeviceGetEccMode": required}).signals["gpu.error"] == "RESET_REQUIRED"


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


def test_what_was_asked_before_a_stall_and_is_not_supported_does_not_apply() -> None:
    stalling = {
        **hopper(),
        "nvmlDeviceGetModuleId": UNSUPPORTED,
        "nvmlDeviceGetUtilizationRates": {"error": "stall"},
    }
    assert "gpu.module" not in read(stalling)[FIRST].unreadable


def test_a_gpu_at_rest_keeps_its_slot_and_its_links_are_not_gone() -> None:
    source, machine = NvmlSource(), Gpus(hopper(links=2), hopper(1, links=2))
    whole = by_slot(source, machine)
    assert machine.document is not None
    machine.document["devices"][1]["nvmlDeviceGetEccMode"] = {"error": "stall"}
    for _ in range(3):
        observations = by_slot(source, machine)
        assert set(observations) == set(whole)
        assert observations[SECOND].status == "hung"
        assert observations[f"{SECOND}/nvlink/0"].status == "hung"
        assert observations[f"{FIRST}/nvlink/0"].status == "read"


def test_a_hang_ends_all_that_comes_after_and_the_round_is_not_whole() -> None:
    source = NvmlSource()
    machine = Gpus(hopper(links=0), {**hopper(1), "nvmlDeviceGetEccMode": {"error": "hang"}}, hopper(2))
    first = by_slot(source, machine)
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
    later = by_slot(source, machine)
    assert set(later) == {NODE, SECOND}
    assert later[NODE].detail == node.detail


def test_a_driver_that_stalls_as_a_whole() -> None:
    document = {**recordings.SYSTEM, "nvmlSystemGetNVMLVersion": {"error": "stall"}}
    observations = by_slot(NvmlSource(), Gpus(hopper(), system=document))
    assert set(observations) == {NODE}
    assert (observations[NODE].status, observations[NODE].detail) == (
        "hung",
        "nvmlSystemGetNVMLVersion gave no answer",
    )
    assert observations[NODE].signals["nvml.hung"] is False


# The library and the driver.


def test_no_library() -> None:
    machine = Gpus()
    machine.document = None
    observations = by_slot(NvmlSource(), machine)
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
def test_a_library_that_does_not_initialise(error: str, reason: str) -> None:
    observations = read(hopper(), error=f"NVML_ERROR_{error}")
    assert set(observations) == {NODE}
    assert (observations[NODE].status, observations[NODE].detail) == ("failed", reason)
    signals = observations[NODE].signals
    assert (signals["nvml.ready"], signals["nvml.error"], signals["nvml.library"]) == (False, error, True)
    assert "gpu.handles_refused" not in signals


def test_gpus_that_cannot_be_counted_are_not_gone() -> None:
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
    observations = by_slot(NvmlSource(), Answered(*system, stalled=(slow,), interrupted=slow))
    assert (observations[NODE].status, observations[NODE].signals["nvml.answers"]) == ("hung", False)
    assert observations[NODE].detail == f"there was no time for the calls after {HANDLE} of GPU index-1"
    assert observations.keys() == {NODE, FIRST, "gpu/index-1"}
    observations = by_slot(NvmlSource(), Answered(*system, interrupted=slow))
    assert (observations[NODE].status, observations[NODE].signals["nvml.ready"]) == ("hung", True)
    assert "nvml.answers" not in observations[NODE].signals
    assert observations.keys() == {NODE, FIRST}
    observations = by_slot(NvmlSource(), Answered(interrupted=CallResult(SYSTEM, "nvmlInit")))
    assert not observations[NODE].signals.keys() & {"nvml.answers", "nvml.ready", "nvml.error"}


def test_a_fault_of_ours_says_nothing_of_the_driver() -> None:
    observations = by_slot(NvmlSource(), Answered(failed="no process"))
    assert observations == {NODE: Observation("nvml", NODE, "failed", detail="no process")}
    observations = by_slot(
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
    system["nvmlSystemGetConfComputeState"] = UNSUPPORTED
    assert "nvml.confidential" not in read(system=system)[NODE].signals


# Modes, links and events.


def test_mig_begins_a_new_epoch_for_counters() -> None:
    assert read(hopper())[FIRST].epoch != read({**hopper(), "nvmlDeviceGetMigMode": [1, 1]})[FIRST].epoch


def test_an_nvlink_that_refuses_leaves_the_count_unknown() -> None:
    device = {**hopper(links=3), "nvmlDeviceGetNvLinkState(2)": DENIED}
    observations = read(device)
    assert observations[f"{FIRST}/nvlink/2"].unreadable["nvlink.active"] == "permission denied: run as root"
    assert observations[FIRST].unreadable["gpu.nvlink.active"] == "permission denied: run as root"
    assert "gpu.nvlink.active" not in observations[FIRST].signals


@pytest.mark.parametrize("error", ["RESET_REQUIRED", "UNKNOWN", "TIMEOUT"])
def test_links_that_are_not_counted_and_fail_are_none(error: str) -> None:
    failed = {"error": f"NVML_ERROR_{error}"}
    pci = hopper()["nvmlDeviceGetPciInfo_v3"]
    device = dict.fromkeys(hopper(), failed) | {"nvmlDeviceGetPciInfo_v3": pci}
    observations = read(device)
    assert observations.keys() == {NODE, FIRST}
    assert "gpu.nvlink.active" in observations[FIRST].unreadable


def test_every_call_is_used() -> None:
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


def test_a_link_to_the_cpu_that_does_not_say_is_not_taken_for_inactive() -> None:
    unknown = {**rack(), "nvmlDeviceGetFieldValues(171,0)": UNSUPPORTED}
    del unknown["nvmlDeviceGetFieldValues(171,1)"]
    observations = read(unknown)[FIRST]
    assert "gpu.c2c.active" not in observations.signals
    assert observations.unreadable == {}
    refused = read({**rack(), "nvmlDeviceGetFieldValues(171,0)": DENIED})[FIRST]
    assert refused.unreadable == {"gpu.c2c.active": "permission denied: run as root"}


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
def test_no_answer_breaks_a_round(
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


def test_a_count_of_links_that_cannot_be_costs_nothing() -> None:
    observations = of_gpu({"nvmlDeviceGetFieldValues(170,0)": value(1 << 60)})
    assert observations.signals["gpu.c2c.count"] == 1 << 60
    assert "gpu.c2c.active" not in observations.signals
