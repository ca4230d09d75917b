"""Conversion of pynvml results to JSON."""

from __future__ import annotations

import ctypes
import math

from nodeguard.worker.call_log import TYPE_CHECKING
from nodeguard.worker.nvml_errors import failure

if TYPE_CHECKING:
    from typing import Any

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
