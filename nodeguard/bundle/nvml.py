"""nvml.json: results of NVML calls, merged over the frames of a recording; read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from nodeguard.bundle.calls import decode_json
from nodeguard.bundle.failures import BundleError, check_result, is_nvml_failure
from nodeguard.bundle.file_tree import apply_changes, changes_between

Results = dict[str, Any]

_CALL = re.compile(r"nvml[A-Za-z]\w*(\(-?\d+(,-?\d+)*\))?", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")
_CALL_REMEDY = "write pynvml's name, with only numbers in parentheses: nvmlDeviceGetNvLinkState(3)"


class NvmlEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """One NVML event. device: its index; type: nvmlEventType; data: for an XID event, the XID."""

    device: Annotated[int, Meta(ge=0)]
    type: Annotated[int, Meta(ge=0)]
    data: Annotated[int, Meta(ge=0)]


class RecordedDevice(Struct, frozen=True):
    """One device. error: why it has no handle; its calls are kept until it has one again."""

    calls: Results = {}
    error: str = ""


class NvmlState(Struct, frozen=True):
    """All results of NVML at one time.

    devices: by a constant number, the index in the base's list; NVML's own index is the rank among the
    present devices. numbers_used: count of such numbers so far. error: why the library does not initialize.
    """

    system: Results = {}
    devices: dict[int, RecordedDevice] = {}
    numbers_used: int = 0
    error: str = ""

    def document(self) -> dict[str, Any]:
        """Return the state in the base's form: `system`, `devices` in NVML's own order, perhaps `error`."""
        devices = [self.devices[number] for number in sorted(self.devices)]
        document: dict[str, Any] = {
            "system": self.system,
            "devices": [{"error": device.error} if device.error else device.calls for device in devices],
        }
        return {**document, "error": self.error} if self.error else document

    def index(self, number: int) -> int | None:
        """Return NVML's index of a device; None if it is absent."""
        return sorted(self.devices).index(number) if number in self.devices else None


class _Base(Struct, forbid_unknown_fields=True):
    system: dict[str, Any] = {}
    devices: list[dict[str, Any]] = []
    events: list[NvmlEvent] = []
    error: str | UnsetType = UNSET


class _Frame(Struct, forbid_unknown_fields=True):
    system: dict[str, Any] = {}
    devices: dict[str, dict[str, Any] | None] = {}
    events: list[NvmlEvent] = []
    error: str | UnsetType | None = UNSET


def read_base(data: bytes, file: str) -> tuple[NvmlState, tuple[NvmlEvent, ...]]:
    """Return the content of the base's nvml.json. Raises BundleError."""
    base: _Base = decode_json(data, file, _Base)
    devices: dict[int, RecordedDevice] = {}
    for number, results in enumerate(base.devices):
        devices[number] = _device(RecordedDevice(), results, file, f"devices[{number}]", base=True)
    _check_results(base.system, file, "system", base=True)
    nvml = NvmlState(base.system, devices, len(devices), _error(base.error, file, ""))
    return nvml, _events(base.events, nvml, nvml, file)


def read_frame(before: NvmlState, data: bytes, file: str) -> tuple[NvmlState, tuple[NvmlEvent, ...]]:
    """Return NVML after a frame's nvml.json, and the frame's events with NVML's index. Raises BundleError."""
    frame: _Frame = decode_json(data, file, _Frame)
    devices = dict(before.devices)
    numbers_used = before.numbers_used
    for name, results in sorted(frame.devices.items(), key=lambda item: (len(item[0]), item[0])):
        field = f"devices.{name}"
        if _NUMBER.fullmatch(name) is None or int(name) > numbers_used:
            problem = f"there are {numbers_used} devices, numbered from 0"
            raise BundleError(file, field, problem, "name one of them, or the next")
        number = int(name)
        if results is None:
            devices.pop(number, None)
            continue
        devices[number] = _device(devices.get(number, RecordedDevice()), results, file, field, base=False)
        numbers_used = max(numbers_used, number + 1)
    _check_results(frame.system, file, "system", base=False)
    error = _error(frame.error, file, before.error)
    after = NvmlState(apply_changes(before.system, frame.system), devices, numbers_used, error)
    return after, _events(frame.events, before, after, file)


def _device(before: RecordedDevice, results: Results, file: str, field: str, *, base: bool) -> RecordedDevice:
    if "error" in results:
        check_result(results, file, field, nvml=True)
        return replace(before, error=results["error"])
    _check_results(results, file, field, base=base)
    return RecordedDevice(apply_changes(before.calls, results))


def _check_results(results: Results, file: str, field: str, *, base: bool) -> None:
    for call, result in results.items():
        if _CALL.fullmatch(call) is None:
            raise BundleError(file, f"{field}.{call}", "is not the name of a call", _CALL_REMEDY)
        if isinstance(result, dict):
            check_result(result, file, f"{field}.{call}", nvml=True)
        elif result is None and base:
            raise BundleError(file, f"{field}.{call}", "has no result", "write one, or leave the call out")


def _error(name: str | UnsetType | None, file: str, before: str) -> str:
    if isinstance(name, UnsetType):
        return before
    if name is not None and not is_nvml_failure(name):
        raise BundleError(
            file, "error", f"{name!r} is not a known failure", "write an NVML_ERROR_… name, stall or hang"
        )
    return name or ""


def _events(events: list[NvmlEvent], before: NvmlState, after: NvmlState, file: str) -> tuple[NvmlEvent, ...]:
    """Return the events with NVML's index instead of the device's number.

    A device that this frame removes keeps its last index.
    """
    indexed = []
    for position, event in enumerate(events):
        index = after.index(event.device)
        if index is None:
            index = before.index(event.device)
        if index is None:
            problem = f"there is no device {event.device}"
            raise BundleError(file, f"events[{position}].device", problem, "name a device of the list")
        indexed.append(replace(event, device=index))
    return tuple(indexed)


def frame_document(before: NvmlState, after: NvmlState) -> dict[str, Any]:
    """Return a frame's nvml.json that leads from `before` to `after`: read_frame(before, …) gives `after`."""
    document: dict[str, Any] = {}
    if system := changes_between(before.system, after.system):
        document["system"] = system
    devices: dict[str, Any] = {str(number): None for number in before.devices if number not in after.devices}
    for number, device in sorted(after.devices.items()):
        earlier = before.devices.get(number)
        if earlier == device:
            continue
        changes = changes_between(earlier.calls if earlier else {}, device.calls)
        devices[str(number)] = {"error": device.error} if device.error else changes
    if devices:
        document["devices"] = devices
    if before.error != after.error:
        document["error"] = after.error or None
    return document


def after_round(before: NvmlState, entries: Iterable[tuple[int, str, Any]]) -> NvmlState:
    """Return the state after one more round of calls: (device's index or -1, call, result).

    A call that was not made keeps its result. A device beyond NVML's device count is removed.
    """
    system = dict(before.system)
    fresh: dict[int, Results] = {}
    lost: dict[int, str] = {}
    for scope, call, result in entries:
        if result is None:
            continue
        recorded = _recordable(result)
        if call == "nvmlInit":
            return replace(before, error=recorded["error"])
        if scope < 0:
            system[call] = recorded
        elif call == "nvmlDeviceGetHandleByIndex":
            lost[scope] = recorded["error"]
        else:
            fresh.setdefault(scope, {})[call] = recorded
    devices_seen = max([*before.devices, *fresh, *lost], default=-1) + 1
    count = system.get("nvmlDeviceGetCount")
    devices = {}
    for number in range(min(devices_seen, count) if isinstance(count, int) else devices_seen):
        earlier = before.devices.get(number)
        if number in lost:
            devices[number] = replace(earlier or RecordedDevice(), error=lost[number])
        elif number in fresh:
            devices[number] = RecordedDevice({**(earlier or RecordedDevice()).calls, **fresh[number]})
        else:
            # A list has no gaps: a device that was never read is in it without a handle.
            devices[number] = earlier or RecordedDevice(error="NVML_ERROR_UNKNOWN")
    return NvmlState(system, devices, max(before.numbers_used, len(devices)))


def _recordable(result: Any) -> Any:
    """Return a result in the form of the format: a failure that is not of NVML becomes NVML_ERROR_UNKNOWN."""
    failed = isinstance(result, dict) and "error" in result and not is_nvml_failure(result["error"])
    return {"error": "NVML_ERROR_UNKNOWN"} if failed else result
