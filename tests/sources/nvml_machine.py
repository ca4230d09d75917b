"""Machines with recorded NVML results, for tests of the source `nvml`."""

from __future__ import annotations

import math
from typing import Any

from nodeguard.model.observation import Observation
from nodeguard.sources.nvml import NvmlSource
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml
from nodeguard.worker.result import CallResult, LaneResult
from tests.sources.fake_machine import FakeMachine, by_target
from tests.worker import recordings

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
    return by_target(NvmlSource(), Gpus(*devices, **more))


def of_gpu(calls: dict[str, Any]) -> Observation:
    """Return the observation of a GPU that answers only these calls."""
    pci = {"nvmlDeviceGetPciInfo_v3": {"busId": "00000000:01:00.0"}}
    return by_target(
        NvmlSource(), Answered(*((0, call, result) for call, result in {**pci, **calls}.items()))
    )[FIRST]
