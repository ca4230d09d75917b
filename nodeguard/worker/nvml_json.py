"""Conversion of pynvml results and return codes to JSON; the names of codes are from nvml.h (NVML API 13)."""

from __future__ import annotations

import ctypes
import math

from nodeguard.worker.call_log import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


NAMES = {
    1: "NVML_ERROR_UNINITIALIZED",
    2: "NVML_ERROR_INVALID_ARGUMENT",
    3: "NVML_ERROR_NOT_SUPPORTED",
    4: "NVML_ERROR_NO_PERMISSION",
    5: "NVML_ERROR_ALREADY_INITIALIZED",
    6: "NVML_ERROR_NOT_FOUND",
    7: "NVML_ERROR_INSUFFICIENT_SIZE",
    8: "NVML_ERROR_INSUFFICIENT_POWER",
    9: "NVML_ERROR_DRIVER_NOT_LOADED",
    10: "NVML_ERROR_TIMEOUT",
    11: "NVML_ERROR_IRQ_ISSUE",
    12: "NVML_ERROR_LIBRARY_NOT_FOUND",
    13: "NVML_ERROR_FUNCTION_NOT_FOUND",
    14: "NVML_ERROR_CORRUPTED_INFOROM",
    15: "NVML_ERROR_GPU_IS_LOST",
    16: "NVML_ERROR_RESET_REQUIRED",
    17: "NVML_ERROR_OPERATING_SYSTEM",
    18: "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    19: "NVML_ERROR_IN_USE",
    20: "NVML_ERROR_MEMORY",
    21: "NVML_ERROR_NO_DATA",
    22: "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED",
    23: "NVML_ERROR_INSUFFICIENT_RESOURCES",
    24: "NVML_ERROR_FREQ_NOT_SUPPORTED",
    25: "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    26: "NVML_ERROR_DEPRECATED",
    27: "NVML_ERROR_NOT_READY",
    28: "NVML_ERROR_GPU_NOT_FOUND",
    29: "NVML_ERROR_INVALID_STATE",
    30: "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED",
    999: "NVML_ERROR_UNKNOWN",
}


def failure(code: int) -> dict[str, str]:
    """Return the result of a call that returned this code: `{"error": NAME}`."""
    return {"error": NAMES.get(code) or f"NVML_ERROR_{code}"}


# Members of nvmlValue_t by NVML_VALUE_TYPE_*, which count from 0.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

# pynvml declares these as characters, but they are binary: zeros in them are part of the value.
_BINARY = {"ibGuid", "rackGuid"}


def as_json(value: Any) -> Any:
    """Return the result of a pynvml function, or the struct that it filled, as JSON.

    Bytes become text, with U+FFFD for invalid UTF-8; structs become objects by field; binary arrays become
    lists of numbers; a single character becomes its number.
    """
    if isinstance(value, ctypes.Structure):
        return {name: _member(value, name, kind) for name, kind, *_ in value._fields_}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple | ctypes.Array):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return as_json(vars(value))  # pynvml's "friendly" objects


def _member(struct: ctypes.Structure, name: str, kind: Any) -> Any:
    if getattr(kind, "_type_", None) not in (ctypes.c_char, "c"):
        return as_json(getattr(struct, name))
    # pynvml cuts character arrays at the first zero and fails on invalid UTF-8: read the memory instead.
    address = ctypes.addressof(struct) + getattr(type(struct), name).offset
    raw = ctypes.string_at(address, ctypes.sizeof(kind))
    if kind is ctypes.c_char:
        return raw[0]
    return list(raw) if name in _BINARY else raw.split(b"\0", 1)[0].decode(errors="replace")


def field_result(value: Any) -> dict[str, Any]:
    """Convert one nvmlFieldValue_t: `{"valueType", "value", "nvmlReturn": 0}`, or `{"error": NAME}`."""
    if value.nvmlReturn:
        return failure(value.nvmlReturn)
    if value.valueType >= len(_MEMBERS):
        return failure(999)
    number = getattr(value.value, _MEMBERS[value.valueType])
    finite = number if math.isfinite(number) else None
    return {"valueType": value.valueType, "value": finite, "nvmlReturn": 0}
