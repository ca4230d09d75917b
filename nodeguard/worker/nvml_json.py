"""Results of pynvml as JSON."""

from __future__ import annotations

import ctypes
import math

from nodeguard.worker.call_log import TYPE_CHECKING
from nodeguard.worker.nvml_errors import failure

if TYPE_CHECKING:
    from typing import Any

# Members of nvmlValue_t by NVML_VALUE_TYPE_*, which count from 0.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

# Declared as characters by pynvml, yet no text: zeros within them are part of the value.
_BINARY = {"ibGuid", "rackGuid"}


def as_json(value: Any) -> Any:
    """What a pynvml function returned, or the struct that it filled, as JSON.

    Bytes become text, with U+FFFD for what is no UTF-8; structs become objects by field; byte arrays that are
    no text become lists of numbers, and a single character its number.
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
    # pynvml cuts character arrays at the first zero and trips over bytes that are no UTF-8: read the memory.
    place = ctypes.addressof(struct) + getattr(type(struct), name).offset
    raw = ctypes.string_at(place, ctypes.sizeof(kind))
    if kind is ctypes.c_char:
        return raw[0]
    return list(raw) if name in _BINARY else raw.split(b"\0", 1)[0].decode(errors="replace")


def field_result(value: Any) -> dict[str, Any]:
    """One nvmlFieldValue_t: `{"valueType", "value", "nvmlReturn": 0}`; `{"error": NAME}` where it failed."""
    if value.nvmlReturn:
        return failure(value.nvmlReturn)
    if value.valueType >= len(_MEMBERS):
        return failure(999)
    number = getattr(value.value, _MEMBERS[value.valueType])
    finite = number if math.isfinite(number) else None
    return {"valueType": value.valueType, "value": finite, "nvmlReturn": 0}
