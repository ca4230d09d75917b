"""NVML of this machine. For the worker process alone: every call here may never return."""

from __future__ import annotations

import ctypes
import os
from functools import cache

import pynvml

from nodeguard.worker.call_log import TYPE_CHECKING
from nodeguard.worker.nvml_calls import REGISTER_EVENTS
from nodeguard.worker.nvml_errors import failure
from nodeguard.worker.nvml_events import EventWatch
from nodeguard.worker.nvml_json import as_json, field_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SONAME = "libnvidia-ml.so.1"

# Where drivers lie that the loader does not know of: the GPU operator's driver container, Google's
# container-optimised system and its device plugin, and the usual places of a host seen through its root.
_PLACES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)

# Structs that the caller of pynvml builds, newest first: an older driver refuses a version it does not know.
_FILLED = {
    "nvmlDeviceGetGpuFabricInfoV": ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"),
    "nvmlDeviceGetGpuFabricInfo": ("c_nvmlGpuFabricInfo_t",),
    "nvmlDeviceGetSramEccErrorStatus": ("c_nvmlEccSramErrorStatus_v1_t",),
    "nvmlDeviceGetPlatformInfo": ("c_nvmlPlatformInfo_v2_t",),
}

# After these a session is of no more use.
_BROKEN = {pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}

_UNSUPPORTED = failure(pynvml.NVML_ERROR_NOT_SUPPORTED)


class _FieldValue(ctypes.Structure):
    """nvmlFieldValue_t as pynvml declares it, without its conversions: there are thousands in a round."""

    _fields_ = pynvml.c_nvmlFieldValue_t._fields_


@cache
def _parsed(call: str) -> tuple[str, tuple[int, ...]]:
    name, _, arguments = call.rstrip(")").partition("(")
    return name, tuple(int(argument) for argument in arguments.split(",") if argument)


def _load(path: str, root: str) -> str:
    """Bring NVML into this process, where pynvml then finds it by its name. Returns why there is none, or ``.

    path: the library, where it is known; nothing else is tried then. root: where a host's root is mounted.
    """
    roots = dict.fromkeys(("/", root or "/"))
    places = [os.path.join(top, place, SONAME) for top in roots for place in _PLACES]
    refused = []
    for candidate in [path] if path else [SONAME, *filter(os.path.exists, places)]:
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as failed:
            refused.append(str(failed))
        else:
            return ""
    tried = "; ".join(refused)
    return f"NVML cannot be loaded ({tried}): install the NVIDIA driver, or say where {SONAME} is"


class NvmlSession:
    """One session of NVML, begun by the first `nvmlInit` that succeeds and kept until the process ends.

    events: descriptor for what NVML tells unasked, None where nobody listens. broken: whether the session, or
    the library itself, has gone bad, so that only a new process can go on.
    """

    def __init__(self, path: str = "", root: str = "", events: int | None = None) -> None:
        self.broken = False
        self._watch = EventWatch(events) if events is not None else None
        self._refused: dict[int, Any] = {}
        self._addresses: dict[int, str] = {}
        self._path, self._root = path, root
        self._open = False
        self._handles: dict[int, Any] = {}
        self._unsupported: set[tuple[int, int, int]] = set()

    def call(self, scope: int, call: str) -> Any:
        """Answer a call, see ask.Call; `nvmlInit` and `nvmlDeviceGetHandleByIndex` succeed with None."""
        name, arguments = _parsed(call)
        try:
            return self._call(scope, name, arguments)
        except pynvml.NVMLError as failed:
            return self._failure(failed)
        except pynvml.NVMLLibraryMismatchError:
            return failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        except UnicodeDecodeError as garbled:
            return garbled.object.decode(errors="replace")
        except Exception:  # noqa: BLE001  (whatever pynvml trips over, the other calls still count)
            return failure(pynvml.NVML_ERROR_UNKNOWN)

    def fields(self, scope: int, fields: Sequence[tuple[int, int]]) -> list[Any]:
        """Answer field values in one call, see ask.Fields.

        What this device does not support is asked once in a session.
        """
        asked = [field for field in fields if (scope, *field) not in self._unsupported]
        if not asked:
            return [_UNSUPPORTED] * len(fields)
        try:
            filled = pynvml.nvmlDeviceGetFieldValues(self._handles[scope], asked)
        except pynvml.NVMLError as failed:
            return [self._failure(failed)] * len(fields)
        values = (_FieldValue * len(asked)).from_buffer(filled)
        results = {field: field_result(value) for field, value in zip(asked, values, strict=True)}
        self._unsupported |= {(scope, *field) for field, result in results.items() if result == _UNSUPPORTED}
        return [results.get(field, _UNSUPPORTED) for field in fields]

    def take_activity(self) -> bool:
        """Whether a device has told of something since the last time that this was asked."""
        return self._watch is not None and self._watch.take_activity()

    def listen(self) -> None:
        """Tell from now on of the events of the devices that this round has registered."""
        if self._watch is not None:
            self._watch.listen()

    def _call(self, scope: int, name: str, arguments: tuple[int, ...]) -> Any:
        if name == "nvmlInit":
            return self._init()
        if name == REGISTER_EVENTS:
            return self._register(scope)
        if name == "nvmlDeviceGetHandleByIndex":
            self._handles[scope] = pynvml.nvmlDeviceGetHandleByIndex(scope)
            return None
        function = getattr(pynvml, name, None)
        if function is None:
            return failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        handle = (self._handles[scope],) if scope in self._handles else ()
        if name in _FILLED:
            return _fill(function, handle, _FILLED[name])
        result = as_json(function(*handle, *arguments))
        if name.startswith("nvmlDeviceGetPciInfo"):
            self._addresses[scope] = result["busId"]
        return result

    def _register(self, scope: int) -> Any:
        """Register a device's events; what this one does not support is asked once in a session."""
        if self._watch is None:
            return None
        if scope in self._refused:
            return self._refused[scope]
        try:
            self._watch.register(scope, self._handles[scope], self._addresses.get(scope, ""))
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound) as refused:
            self._refused[scope] = failure(refused.value)
            return self._refused[scope]
        return None

    def _init(self) -> Any:
        if self._open:
            return None
        if missing := _load(self._path, self._root):
            return {"missing": missing}
        pynvml.nvmlInit()
        self._open = True
        return None

    def _failure(self, failed: Any) -> dict[str, str]:
        # A library that a driver's update has left behind never fits again in this process. One that finds no
        # driver can try again.
        self.broken |= failed.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        self.broken |= self._open and failed.value in _BROKEN
        return failure(failed.value)


def _fill(function: Any, handle: tuple[Any, ...], structs: tuple[str, ...]) -> Any:
    kinds = [kind for kind in (getattr(pynvml, struct, None) for struct in structs) if kind]
    for kind in kinds:
        struct = kind()
        try:
            function(*handle, ctypes.byref(struct))
        except pynvml.NVMLError_ArgumentVersionMismatch:
            if kind is kinds[-1]:
                raise
        else:
            return as_json(struct)
    return failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
