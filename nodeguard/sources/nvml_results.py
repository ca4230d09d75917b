"""What the result of an NVML call says: a value, nothing, or why there is none.

A result is as nodeguard.worker.answer.Entry has it, whatever a driver or a recording may have put there.
"""

from __future__ import annotations

import re
from typing import Any

from nodeguard.model.signal import Scalar
from nodeguard.sources.nvml_table import Row

_FIELD = re.compile(r"fields\((\d+)(?:,(\d+))?\)")
_SHOWN = 60

# Answers by which NVML says that a thing does not exist on this GPU or in this driver, not that it could not
# be read.
_NOT_THERE = frozenset(
    {
        "NVML_ERROR_NOT_SUPPORTED",
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_NOT_FOUND",
        "NVML_ERROR_INVALID_ARGUMENT",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        "NVML_ERROR_DEPRECATED",
    }
)
_REASONS = {
    "NVML_ERROR_NO_PERMISSION": "permission denied: run as root",
    "NVML_ERROR_OPERATING_SYSTEM": "the operating system denies access to the device",
    "NVML_ERROR_GPU_IS_LOST": "the GPU is lost",
    "NVML_ERROR_RESET_REQUIRED": "the GPU must be reset first",
    "NVML_ERROR_TIMEOUT": "the driver timed out",
    "NVML_ERROR_NO_DATA": "no sample yet",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver's library and kernel module differ in version",
}


def error_of(result: Any) -> str:
    """Name of the error that a result is, empty where it is none."""
    return str(result["error"]) if isinstance(result, dict) and "error" in result else ""


def reason(error: str) -> str:
    """Why a call failed, in an operator's words; the error's name where there are none."""
    return _REASONS.get(error, error)


def read(
    rows: tuple[Row, ...], calls: dict[str, Any], link: int | None = None, *, complete: bool = True
) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Signals of some rows, and why those could not be read that should have been.

    calls: results of one device, by call. link: the NVLink to read. complete: whether all was asked that was
    to be asked, so that a call without a result means nothing.
    """
    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    for row in rows:
        value, why = _value(row, calls, "" if link is None else str(link), complete=complete)
        if value is not None:
            signals[row.signal.name] = value
        elif why:
            unread[row.signal.name] = why
    return signals, unread


def _value(row: Row, calls: dict[str, Any], link: str, *, complete: bool) -> tuple[Scalar | None, str]:
    """A row's value, or why it could not be read; neither where it does not apply."""
    why = ""
    for template, item in row.calls:
        call = template.replace("{link}", link)
        result = _result(calls, call)
        error = error_of(result)
        if result is None:
            why = why or ("" if complete else "a call before it met no answer")
        elif error:
            why = why if error in _NOT_THERE else reason(error)
        # A struct of an older version has not all fields.
        elif not (isinstance(item, str) and isinstance(result, dict) and item not in result):
            try:
                return row.convert(result if item is None else result[item]), ""
            except (ValueError, TypeError, LookupError, OverflowError):
                why = f"{call} says {str(result)[:_SHOWN]!r}"
    return None, why


def _result(calls: dict[str, Any], call: str) -> Any:
    """Result of a call as the table writes it; a field's value is taken out of its envelope."""
    field = _FIELD.match(call)
    if field is None:
        return calls.get(call)
    result = calls.get(f"nvmlDeviceGetFieldValues({field[1]},{field[2] or 0})")
    return result if not isinstance(result, dict) or "error" in result else result.get("value")
