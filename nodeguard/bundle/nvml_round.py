"""Rounds of NVML calls, as a recording machine makes them, in the form of nvml.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from nodeguard.bundle.failing import is_nvml_word
from nodeguard.bundle.nvml import Device, Nvml, Results
from nodeguard.bundle.patch import changes_between


def frame_document(before: Nvml, after: Nvml) -> dict[str, Any]:
    """What a frame's nvml.json says to make `after` out of `before`: read_frame(before, …) gives `after`."""
    document: dict[str, Any] = {}
    if system := changes_between(before.system, after.system):
        document["system"] = system
    devices: dict[str, Any] = {str(number): None for number in before.devices if number not in after.devices}
    for number, device in sorted(after.devices.items()):
        was = before.devices.get(number)
        if was == device:
            continue
        changes = changes_between(was.calls if was else {}, device.calls)
        devices[str(number)] = {"error": device.error} if device.error else changes
    if devices:
        document["devices"] = devices
    if before.error != after.error:
        document["error"] = after.error or None
    return document


def after_round(before: Nvml, entries: Iterable[tuple[int, str, Any]]) -> Nvml:
    """What NVML answered, after one more round of calls: (device's index or -1, call, result).

    A call that was not asked keeps its result. A device beyond the count that NVML gave is gone.
    """
    system = dict(before.system)
    fresh: dict[int, Results] = {}
    lost: dict[int, str] = {}
    for scope, call, result in entries:
        if result is None:
            continue
        told = _known(result)
        if call == "nvmlInit":
            return replace(before, error=told["error"])
        if scope < 0:
            system[call] = told
        elif call == "nvmlDeviceGetHandleByIndex":
            lost[scope] = told["error"]
        else:
            fresh.setdefault(scope, {})[call] = told
    there = max([*before.devices, *fresh, *lost], default=-1) + 1
    count = system.get("nvmlDeviceGetCount")
    devices = {}
    for number in range(min(there, count) if isinstance(count, int) else there):
        was = before.devices.get(number)
        if number in lost:
            devices[number] = replace(was or Device(), error=lost[number])
        elif number in fresh:
            devices[number] = Device({**(was or Device()).calls, **fresh[number]})
        else:
            # A list has no gaps: a device that was never asked stands there without a handle.
            devices[number] = was or Device(error="NVML_ERROR_UNKNOWN")
    return Nvml(system, devices, max(before.places, len(devices)))


def _known(result: Any) -> Any:
    """A result in words that the format has: a failure that NVML did not give is its unknown error."""
    failed = isinstance(result, dict) and "error" in result and not is_nvml_word(result["error"])
    return {"error": "NVML_ERROR_UNKNOWN"} if failed else result
