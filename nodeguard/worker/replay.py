"""Rounds on a recording: no process and no waiting, but the same calls in the same order, the same memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nodeguard.model.failure import HungError, StalledError
from nodeguard.worker import filesystem_calls, nvml_calls
from nodeguard.worker.call_log import TYPE_CHECKING, CallLog, error_name
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.nvml_errors import failure
from nodeguard.worker.progress import RunProgress
from nodeguard.worker.result import SYSTEM, LaneResult

if TYPE_CHECKING:
    from nodeguard.worker.call_log import Call

_FAILURES = {"stall": StalledError, "hang": HungError}
_NOT_SUPPORTED = failure(3)

# Under this name a recording has the batch of field values that met no answer.
_BATCH = "nvmlDeviceGetFieldValues"


class RecordedNvml:
    """NVML as a bundle's nvml.json tells it, `{"system": …, "devices": […]}`; None where no library is."""

    def __init__(self, recorded: Mapping[str, Any] | None) -> None:
        self._recorded = recorded
        self._system: Mapping[str, Any] = recorded.get("system", {}) if recorded else {}
        self._devices: Sequence[Mapping[str, Any]] = recorded.get("devices", ()) if recorded else ()

    def call(self, scope: int, call: str) -> Any:
        """Result of one call; NOT_SUPPORTED where it was not recorded. Raises StalledError, HungError."""
        if call == "nvmlInit":
            return self._init()
        if call == "nvmlDeviceGetHandleByIndex":
            return _answer(self._devices[scope], call) if error_name(self._devices[scope]) else None
        calls = self._system if scope == SYSTEM else self._devices[scope]
        if call == nvml_calls.REGISTER_EVENTS:
            return _answer(calls.get(call), call)  # what it gives where it succeeds are the events
        missing = calls.get(_BATCH, _NOT_SUPPORTED) if call.startswith(_BATCH) else _NOT_SUPPORTED
        result = _answer(calls.get(call, missing), call)
        if call == nvml_calls.DEVICE_COUNT and error_name(result) in {"", error_name(_NOT_SUPPORTED)}:
            return len(self._devices)
        # A field value that failed is told by its code in a bundle, by name from here on.
        code = result.get("nvmlReturn", 0) if isinstance(result, dict) else 0
        return failure(code if isinstance(code, int) else 999) if code else result

    def _init(self) -> Any:
        if self._recorded is None:
            return {"missing": "the recording was made on a machine without libnvidia-ml.so.1"}
        return _answer(self._recorded, "nvmlInit") if error_name(self._recorded) else None


def _answer(recorded: Any, call: str) -> Any:
    failed = _FAILURES.get(error_name(recorded))
    if failed is not None:
        raise failed(call)
    return {"error": error_name(recorded)} if error_name(recorded) else recorded


def replay_nvml(
    memory: LaneState, recorded: Mapping[str, Any] | None, leave: frozenset[int] = frozenset()
) -> LaneResult:
    """One round of the NVML lane on a bundle's nvml.json, None where there is none.

    memory: the lane's, kept by the caller from round to round. leave: devices that are not touched.
    """
    return _rehearse(memory, RecordedNvml(recorded).call, nvml_calls.ask_all, leave=leave)


def replay_statvfs(memory: LaneState, recorded: Mapping[str, Any], mounts: tuple[str, ...]) -> LaneResult:
    """One round of the file-system lane on a bundle's calls.json; of a mount that is not there it tells
    nothing.
    """

    def call(_scope: int, call: str) -> Any:
        return _answer(recorded[call], call) if call in recorded else None

    return _rehearse(memory, call, partial(filesystem_calls.ask_all, mounts=mounts), mounts)


def _rehearse(
    memory: LaneState,
    call: Call,
    ask_all: Callable[[CallLog, frozenset[int]], object],
    mounts: tuple[str, ...] = (),
    leave: frozenset[int] = frozenset(),
) -> LaneResult:
    hung = memory.hung(mounts)
    if hung is not None:
        return LaneResult(hung=hung)
    played = memory.begin(mounts)
    while True:
        run = RunProgress()
        try:
            ask_all(CallLog(call, run.note), played.skip() | leave)
        except HungError:
            return played.hang(run.results, run.call)
        except StalledError:
            if not played.stall(run.results, run.call):
                return played.end()
        else:
            return played.end(run.results, run.missing)
