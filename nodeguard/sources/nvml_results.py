"""What the result of an NVML call says: a value, nothing, or why there is none.

A result is as nodeguard.worker.result.Entry has it, whatever a driver or a recording may have put there.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from nodeguard.model.target import nvlink_target
from nodeguard.sources.nvml_table import NVLINK, Row

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


def error_name(result: Any) -> str:
    """Name of the error that a result is, empty where it is none."""
    return str(result["error"]) if isinstance(result, dict) and "error" in result else ""


def nvml_reason(error: str) -> str:
    """Why a call failed, in an operator's words; the error's name where there are none."""
    return _REASONS.get(error, error)


def read_rows(
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
        call, is_field = _named(template, link)
        result = calls.get(call)
        # A field's value is taken out of its envelope.
        if is_field and isinstance(result, dict) and "error" not in result:
            result = result.get("value")
        error = error_name(result)
        if result is None:
            why = why or ("" if complete else "a call before it met no answer")
        elif error:
            why = why if error in _NOT_THERE else nvml_reason(error)
        # A struct of an older version has not all fields.
        elif not (isinstance(item, str) and isinstance(result, dict) and item not in result):
            try:
                return row.convert(result if item is None else result[item]), ""
            except (ValueError, TypeError, LookupError, OverflowError):
                why = f"{template.replace('{link}', link)} says {str(result)[:_SHOWN]!r}"
    return None, why


@cache
def _named(template: str, link: str) -> tuple[str, bool]:
    """A call of the table as it was asked, and whether it is a field value."""
    call = template.replace("{link}", link)
    field = _FIELD.match(call)
    return (f"nvmlDeviceGetFieldValues({field[1]},{field[2] or 0})", True) if field else (call, False)


class NvlinkReader:
    """Reads NVLinks. Of one whose results are those of before, the very same observation is given again.

    There are many of them, nothing ever happens on most, and whoever gets the same object has nothing to do.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, int], tuple[list[Any], Observation]] = {}

    def read(self, gpu: str, link: int, calls: dict[str, Any], *, complete: bool) -> Observation:
        """An NVLink of a GPU. calls, complete: see read."""
        told = [complete, *map(calls.get, _names(link))]
        before = self._before.get((gpu, link))
        if before is not None and before[0] == told:
            return before[1]
        signals, unread = read_rows(NVLINK, calls, link, complete=complete)
        observation = Observation("nvml", nvlink_target(gpu, link), "read", signals, unread)
        self._before[gpu, link] = (told, observation)
        return observation


@cache
def _names(link: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_named(template, str(link))[0] for row in NVLINK for template, _ in row.calls))
