"""nvml.json: results of NVML calls, merged over the frames of a recording."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from nodeguard.bundle.calls import decoded
from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.failing import check_result, is_nvml_word
from nodeguard.bundle.patch import patched

Results = dict[str, Any]

_CALL = re.compile(r"nvml[A-Za-z]\w*(\(-?\d+(,-?\d+)*\))?", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")
_CALL_REMEDY = "write pynvml's name, with numbers alone in parentheses: nvmlDeviceGetNvLinkState(3)"


class NvmlEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """One NVML event. device: its index; type: nvmlEventType; data: for an XID event, the XID."""

    device: Annotated[int, Meta(ge=0)]
    type: Annotated[int, Meta(ge=0)]
    data: Annotated[int, Meta(ge=0)]


class Device(Struct, frozen=True):
    """One device. error: why it has no handle; its calls then wait until it has one again."""

    calls: Results = {}
    error: str = ""


class Nvml(Struct, frozen=True):
    """All that NVML would answer at one time.

    devices: by a number that stays, the place in the base's list; NVML's own index is the rank among those
    that are there. places: how many such numbers there ever were. error: why the library does not initialise.
    """

    system: Results = {}
    devices: dict[int, Device] = {}
    places: int = 0
    error: str = ""

    def document(self) -> dict[str, Any]:
        """The same in the base's form: `system`, `devices` in NVML's own order, perhaps `error`."""
        devices = [self.devices[number] for number in sorted(self.devices)]
        document: dict[str, Any] = {
            "system": self.system,
            "devices": [{"error": device.error} if device.error else device.calls for device in devices],
        }
        return {**document, "error": self.error} if self.error else document

    def index(self, number: int) -> int | None:
        """NVML's index of a device; None where it is not there."""
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


def read_base(data: bytes, file: str) -> tuple[Nvml, tuple[NvmlEvent, ...]]:
    """Content of the base's nvml.json. Raises BundleError."""
    base: _Base = decoded(data, file, _Base)
    devices: dict[int, Device] = {}
    for number, results in enumerate(base.devices):
        devices[number] = _device(Device(), results, file, f"devices[{number}]", base=True)
    _check_results(base.system, file, "system", base=True)
    nvml = Nvml(base.system, devices, len(devices), _error(base.error, file, ""))
    return nvml, _events(base.events, nvml, nvml, file)


def read_frame(before: Nvml, data: bytes, file: str) -> tuple[Nvml, tuple[NvmlEvent, ...]]:
    """NVML after a frame's nvml.json, and the frame's events with NVML's own index. Raises BundleError."""
    frame: _Frame = decoded(data, file, _Frame)
    devices = dict(before.devices)
    places = before.places
    for name, results in sorted(frame.devices.items(), key=lambda item: (len(item[0]), item[0])):
        field = f"devices.{name}"
        if _NUMBER.fullmatch(name) is None or int(name) > places:
            problem = f"there are {places} devices, numbered from 0"
            raise BundleError(file, field, problem, "name one of them, or the next")
        number = int(name)
        if results is None:
            devices.pop(number, None)
            continue
        devices[number] = _device(devices.get(number, Device()), results, file, field, base=False)
        places = max(places, number + 1)
    _check_results(frame.system, file, "system", base=False)
    error = _error(frame.error, file, before.error)
    after = Nvml(patched(before.system, frame.system), devices, places, error)
    return after, _events(frame.events, before, after, file)


def _device(before: Device, results: Results, file: str, field: str, *, base: bool) -> Device:
    if "error" in results:
        check_result(results, file, field, nvml=True)
        return replace(before, error=results["error"])
    _check_results(results, file, field, base=base)
    return Device(patched(before.calls, results))


def _check_results(results: Results, file: str, field: str, *, base: bool) -> None:
    for call, result in results.items():
        if _CALL.fullmatch(call) is None:
            raise BundleError(file, f"{field}.{call}", "is no name of a call", _CALL_REMEDY)
        if isinstance(result, dict):
            check_result(result, file, f"{field}.{call}", nvml=True)
        elif result is None and base:
            raise BundleError(file, f"{field}.{call}", "has no result", "write one, or leave the call out")


def _error(word: str | UnsetType | None, file: str, before: str) -> str:
    if isinstance(word, UnsetType):
        return before
    if word is not None and not is_nvml_word(word):
        raise BundleError(
            file, "error", f"{word!r} is no known failure", "write an NVML_ERROR_… name, stall or hang"
        )
    return word or ""


def _events(events: list[NvmlEvent], before: Nvml, after: Nvml, file: str) -> tuple[NvmlEvent, ...]:
    """Events with NVML's own index in place of the device's number.

    A device that this frame takes away still has the index that it had.
    """
    found = []
    for place, event in enumerate(events):
        index = after.index(event.device)
        if index is None:
            index = before.index(event.device)
        if index is None:
            problem = f"there is no device {event.device}"
            raise BundleError(file, f"events[{place}].device", problem, "name a device of the list")
        found.append(replace(event, device=index))
    return tuple(found)
