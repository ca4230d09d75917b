"""Replay of lane rounds on a recording: the same calls, order and lane state, without a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nodeguard.model.failure import HungError, StalledError
from nodeguard.worker import filesystem_calls, nvml_calls
from nodeguard.worker.call_log import TYPE_CHECKING, CallLog, error_name
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.nvml_json import failure
from nodeguard.worker.progress import RunProgress
from nodeguard.worker.result import SYSTEM, LaneResult

if TYPE_CHECKING:
    from nodeguard.worker.call_log import Call

_FAILURES = {"stall": StalledError, "hang": HungError}
_NOT_SUPPORTED = failure(3)

# Name under which a recording has a batch of field values without an answer.
_BATCH = "nvmlDeviceGetFieldValues"


class RecordedNvml:
    """NVML as in a bundle's nvml.json, `{"system": …, "devices": […]}`; None if there is no library."""

    def __init__(self, recorded: Mapping[str, Any] | None) -> None:
        self._recorded = recorded
        self._system: Mapping[str, Any] = recorded.get("system", {}) if recorded else {}
        self._devices: Sequence[Mapping[str, Any]] = recorded.get("devices", ()) if recorded else ()

    def call(self, scope: int, call: str) -> Any:
        """Return the result of one call; NOT_SUPPORTED if unrecorded. Raises StalledError, HungError."""
        if call == "nvmlInit":
            return self._init()
        if call == "nvmlDeviceGetHandleByIndex":
            return _answer(self._devices[scope], call) if error_name(self._devices[scope]) else None
        calls = self._system if scope == SYSTEM else self._devices[scope]
        if call == nvml_calls.REGISTER_EVENTS:
            return _answer(calls.get(call), call)  # on success it returns no result, only events
        missing = calls.get(_BATCH, _NOT_SUPPORTED) if call.startswith(_BATCH) else _NOT_SUPPORTED
        result = _answer(calls.get(call, missing), call)
        if call == nvml_calls.DEVICE_COUNT and error_name(result) in {"", error_name(_NOT_SUPPORTED)}:
            return len(self._devices)
        # A bundle has the code of a failed field value; here it becomes the name.
        code = result.get("nvmlReturn", 0) if isinstance(result, dict) else 0
        return failure(code if isinstance(code, int) else 999) if code else result

    def _init(self) -> Any:
        if self._recorded is None:
            return {"missing": "the recording was made on a machine without libnvidia-ml.so.1"}
        return _answer(self._recorded, "nvmlInit") if error_name(self._recorded) else None


def _answer(recorded: Any, call: str) -> Any:
    failure_class = _FAILURES.get(error_name(recorded))
    if failure_class is not None:
        raise failure_class(call)
    return {"error": error_name(recorded)} if error_name(recorded) else recorded


def replay_nvml(
    state: LaneState, recorded: Mapping[str, Any] | None, leave: frozenset[int] = frozenset()
) -> LaneResult:
    """Replay one round of the NVML lane. recorded: a bundle's nvml.json, None if it has none.

    state: of the lane; the caller keeps it from round to round. leave: devices that the round must not touch.
    """
    return _replay(state, RecordedNvml(recorded).call, nvml_calls.ask_all, leave=leave)


def replay_statvfs(state: LaneState, recorded: Mapping[str, Any], mounts: tuple[str, ...]) -> LaneResult:
    """Replay one round of the file-system lane on a bundle's calls.json; other mounts give no result."""

    def call(_scope: int, call: str) -> Any:
        return _answer(recorded[call], call) if call in recorded else None

    return _replay(state, call, partial(filesystem_calls.ask_all, mounts=mounts), mounts)


def _replay(
    state: LaneState,
    call: Call,
    ask_all: Callable[[CallLog, frozenset[int]], object],
    mounts: tuple[str, ...] = (),
    leave: frozenset[int] = frozenset(),
) -> LaneResult:
    hung = state.hung(mounts)
    if hung is not None:
        return LaneResult(hung=hung)
    lane_round = state.begin(mounts)
    while True:
        run = RunProgress()
        try:
            ask_all(CallLog(call, run.note), lane_round.skip() | leave)
        except HungError:
            return lane_round.hang(run.results, run.call)
        except StalledError:
            if not lane_round.stall(run.results, run.call):
                return lane_round.end()
        else:
            return lane_round.end(run.results, run.missing)
