"""NvmlSession: NVML of this machine. Only for the worker process: any call here may never return."""

from __future__ import annotations

import ctypes
import os
from functools import cache

import pynvml

from nodeguard.worker.call_log import TYPE_CHECKING
from nodeguard.worker.nvml_calls import REGISTER_EVENTS
from nodeguard.worker.nvml_events import EventWatch
from nodeguard.worker.nvml_json import as_json, failure, field_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SONAME = "libnvidia-ml.so.1"

# Directories of drivers that are not in the loader's path: the GPU operator's driver container, Google's
# Container-Optimized OS and its device plugin, and the usual directories of a host below its root.
_DIRECTORIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)

# Structs that the caller of pynvml passes, newest first: an older driver rejects an unknown version.
_FILLED = {
    "nvmlDeviceGetGpuFabricInfoV": ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"),
    "nvmlDeviceGetGpuFabricInfo": ("c_nvmlGpuFabricInfo_t",),
    "nvmlDeviceGetSramEccErrorStatus": ("c_nvmlEccSramErrorStatus_v1_t",),
    "nvmlDeviceGetPlatformInfo": ("c_nvmlPlatformInfo_v2_t",),
}

# After these errors a session is unusable.
_BROKEN = {pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}

_UNSUPPORTED = failure(pynvml.NVML_ERROR_NOT_SUPPORTED)


class _FieldValue(ctypes.Structure):
    """nvmlFieldValue_t as pynvml declares it, without its conversions: a round has thousands."""

    _fields_ = pynvml.c_nvmlFieldValue_t._fields_


@cache
def _parsed(call: str) -> tuple[str, tuple[int, ...]]:
    name, _, arguments = call.rstrip(")").partition("(")
    return name, tuple(int(argument) for argument in arguments.split(",") if argument)


def _load(path: str, root: str) -> str:
    """Load NVML into this process, where pynvml finds it by name. Return why that failed, or ``.

    path: the library, if known; no other path is tried then. root: where a host's root is mounted.
    """
    roots = dict.fromkeys(("/", root or "/"))
    paths = [os.path.join(top, directory, SONAME) for top in roots for directory in _DIRECTORIES]
    errors = []
    for candidate in [path] if path else [SONAME, *filter(os.path.exists, paths)]:
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            errors.append(str(error))
        else:
            return ""
    tried = "; ".join(errors)
    return f"NVML cannot be loaded ({tried}): install the NVIDIA driver, or pass the path of {SONAME}"


class NvmlSession:
    """One session of NVML, from the first successful `nvmlInit` until the process ends.

    events: descriptor for NVML events, None for none. broken: whether the session or the library is unusable,
    so that only a new process can continue.
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
        """Make a call, see call_log.Call; nvmlInit and nvmlDeviceGetHandleByIndex return None on success."""
        name, arguments = _parsed(call)
        try:
            return self._call(scope, name, arguments)
        except pynvml.NVMLError as error:
            return self._failure(error)
        except pynvml.NVMLLibraryMismatchError:
            return failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        except UnicodeDecodeError as error:
            return error.object.decode(errors="replace")
        except Exception:  # noqa: BLE001  (after any failure in pynvml the other calls still count)
            return failure(pynvml.NVML_ERROR_UNKNOWN)

    def fields(self, scope: int, fields: Sequence[tuple[int, int]]) -> list[Any]:
        """Read field values in one call, see call_log.Fields.

        A field that the device does not support is read once in a session.
        """
        supported = [field for field in fields if (scope, *field) not in self._unsupported]
        if not supported:
            return [_UNSUPPORTED] * len(fields)
        try:
            filled = pynvml.nvmlDeviceGetFieldValues(self._handles[scope], supported)
        except pynvml.NVMLError as error:
            return [self._failure(error)] * len(fields)
        values = (_FieldValue * len(supported)).from_buffer(filled)
        results = {field: field_result(value) for field, value in zip(supported, values, strict=True)}
        self._unsupported |= {(scope, *field) for field, result in results.items() if result == _UNSUPPORTED}
        return [results.get(field, _UNSUPPORTED) for field in fields]

    def take_activity(self) -> bool:
        """Return whether there was an event of a device since the last call."""
        return self._watch is not None and self._watch.take_activity()

    def listen(self) -> None:
        """Start to receive the events of the devices that this round has registered."""
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
        """Register a device's events; a device that does not support them is tried once in a session."""
        if self._watch is None:
            return None
        if scope in self._refused:
            return self._refused[scope]
        try:
            self._watch.register(scope, self._handles[scope], self._addresses.get(scope, ""))
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound) as error:
            self._refused[scope] = failure(error.value)
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

    def _failure(self, error: Any) -> dict[str, str]:
        # After an update of the driver, the loaded library does not fit for the rest of this process. A
        # library that finds no driver can try again.
        self.broken |= error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        self.broken |= self._open and error.value in _BROKEN
        return failure(error.value)


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
