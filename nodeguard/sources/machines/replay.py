"""ReplayMachine: a recorded machine, read through the same calls as a live one, in virtual time."""

from __future__ import annotations

import math
from typing import Any

from nodeguard.bundle.failures import failure_from_name
from nodeguard.bundle.kmsg import KMSG
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import (
    LaneHangs,
    LogCursor,
    LogRecords,
    MetadataRequest,
    MetadataResponse,
    recorded_response,
)
from nodeguard.sources.machines.kernel_log import last_sequence, sequence_number
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml, replay_statvfs
from nodeguard.worker.result import LaneResult


class ReplayMachine:
    """The machine of a recording, at the second of the last `seek`.

    started_at: second of the recording at which the agent started; it has no earlier NVML events. None is the
    beginning. cursor, hangs: state of an earlier agent, see LiveMachine.

    A new boot resets the lane states, as the workers of a live machine end with the boot.
    """

    def __init__(
        self,
        recording: Recording,
        started_at: float | None = None,
        cursor: LogCursor | None = None,
        hangs: LaneHangs | None = None,
    ) -> None:
        self._recording = recording
        self._at = 0.0
        self._state = recording.state_at(started_at or 0.0)
        self._log_read_to = -math.inf
        self._events_read_to = -math.inf if started_at is None else started_at
        self._cursor = cursor
        self._last_record = cursor
        hangs = hangs or LaneHangs()
        self._gpus = LaneState(hangs.nvml)
        # The last round of NVML without a stall or hang: it depends on the recorded results and `leave` only.
        self._nvml_round: tuple[dict[str, Any] | None, frozenset[int], LaneResult] | None = None
        self._filesystems = LaneState(hangs.filesystem)

    def seek(self, seconds: float) -> None:
        """Move to a second of the recording, never back."""
        boot_id = self._state.instant.boot_id
        self._at = seconds
        self._state = self._recording.state_at(seconds)
        if self._state.instant.boot_id != boot_id:
            self._gpus, self._filesystems = LaneState(), LaneState()

    def state(self) -> RecordedState:
        """Return the recorded state at this second."""
        return self._state

    def now(self) -> Instant:
        """See Machine.now."""
        return self._state.instant

    def read(self, path: str) -> str:
        """See Machine.read."""
        return self.state().read(path)

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return self.state().tree.names(path)

    def link(self, path: str) -> str:
        """See Machine.link."""
        return self.state().tree.link(path)

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        result = self.state().calls.get(name, {"error": "ENOSYS"})
        if "error" in result:
            raise failure_from_name(result["error"], name)
        return result

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:  # noqa: ARG002
        """See Machine.http."""
        return recorded_response(self.state().calls.get(request.call), request.call)

    def log(self, within: float = math.inf) -> LogRecords:  # noqa: ARG002 - virtual time does not advance
        """See Machine.log."""
        failure = self.state().tree.errors.get(KMSG)
        if failure is not None:
            raise failure_from_name(failure, KMSG)
        boot_id = self._state.instant.boot_id
        skip = last_sequence(self._cursor, boot_id)
        new = self._recording.log(self._at, self._log_read_to)
        records = tuple(record for record in new if not 0 <= sequence_number(record) <= skip)
        self._log_read_to = self._at
        last = max((last_sequence(self._last_record, boot_id), *map(sequence_number, records)))
        self._last_record = LogCursor(boot_id, last)
        return LogRecords(records, last=last)

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:  # noqa: ARG002
        """See Machine.statvfs."""
        return replay_statvfs(self._filesystems, self.state().calls, mounts)

    def nvml(
        self,
        within: float = math.inf,  # noqa: ARG002
        leave: frozenset[int] = frozenset(),
    ) -> LaneResult:
        """See Machine.nvml."""
        recorded = self.state().nvml
        if (before := self._nvml_round) and before[0] is recorded and before[1] == leave:
            return before[2]
        result = replay_nvml(self._gpus, recorded, leave)
        is_clean = not (result.stalled or result.skipped or result.hung)
        self._nvml_round = (recorded, leave, result) if is_clean else None
        return result

    def detach_gpus(self, *, ends_stalls: bool) -> None:
        """See LiveMachine.detach_gpus; a recording has no open GPU device."""
        if ends_stalls:
            self._gpus.end_stalls()

    def hangs(self) -> LaneHangs:
        """Return the calls in which the lanes hang, for the next agent in this boot."""
        return LaneHangs(self._gpus.hang, self._filesystems.hang)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        events = self._recording.nvml_events(self._at, self._events_read_to)
        self._events_read_to = self._at
        return tuple(map(device_event, events))


def device_event(event: NvmlEvent) -> DeviceEvent:
    """Return a recorded event in the form of Machine.nvml_events."""
    return DeviceEvent(event.device, event.type, event.data)
