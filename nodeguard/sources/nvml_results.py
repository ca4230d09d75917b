"""Results of NVML calls as signals: a value, not applicable, or a reason why the value is unread.

A result has the form of nodeguard.worker.result.CallResult, with any content that a driver or recording gave.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from nodeguard.model.target import nvlink_target
from nodeguard.sources.nvml_rows import Row
from nodeguard.sources.nvml_table import NVLINK

_FIELD = re.compile(r"fields\((\d+)(?:,(\d+))?\)")
_SHOWN = 60

# Errors which mean that something does not exist on this GPU or in this driver, not that a read failed.
_DOES_NOT_EXIST = frozenset(
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
    """Return the name of the error in a result, empty if it is not an error."""
    return str(result["error"]) if isinstance(result, dict) and "error" in result else ""


def nvml_reason(error: str) -> str:
    """Return for an operator why a call failed; the error's name if there is no text for it."""
    return _REASONS.get(error, error)


def read_rows(
    rows: tuple[Row, ...], calls: dict[str, Any], link: int | None = None, *, complete: bool = True
) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Return the signals of some rows, and the reasons for those that could not be read.

    calls: results of one device, by call. link: the NVLink to read. complete: whether all calls were made, so
    that a call without a result is not a failure.
    """
    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    for row in rows:
        value, reason = _value(row, calls, "" if link is None else str(link), complete=complete)
        if value is not None:
            signals[row.signal.name] = value
        elif reason:
            unread[row.signal.name] = reason
    return signals, unread


def _value(row: Row, calls: dict[str, Any], link: str, *, complete: bool) -> tuple[Scalar | None, str]:
    """Return the value of a row, or the reason why it is unread; neither if it does not apply."""
    reason = ""
    for template, item in row.calls:
        call, is_field = _named(template, link)
        result = calls.get(call)
        # Take the value of a field out of its envelope.
        if is_field and isinstance(result, dict) and "error" not in result:
            result = result.get("value")
        error = error_name(result)
        if result is None:
            reason = reason or ("" if complete else "an earlier call gave no answer")
        elif error:
            reason = reason if error in _DOES_NOT_EXIST else nvml_reason(error)
        # A struct of an older version has not all fields.
        elif not (isinstance(item, str) and isinstance(result, dict) and item not in result):
            try:
                return row.convert(result if item is None else result[item]), ""
            except (ValueError, TypeError, LookupError, OverflowError):
                reason = f"{template.replace('{link}', link)} reads {str(result)[:_SHOWN]!r}"
    return None, reason


@cache
def _named(template: str, link: str) -> tuple[str, bool]:
    """Return a call of the table as the lane makes it, and whether it is a field value."""
    call = template.replace("{link}", link)
    field = _FIELD.match(call)
    return (f"nvmlDeviceGetFieldValues({field[1]},{field[2] or 0})", True) if field else (call, False)


class NvlinkReader:
    """Reads NVLinks. If the results of a link did not change, it returns the same observation object again.

    There are many links, and most never change; a consumer has nothing to do for an object that it has seen.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, int], tuple[list[Any], Observation]] = {}

    def read(self, gpu: str, link: int, calls: dict[str, Any], *, complete: bool) -> Observation:
        """Return the observation of one NVLink of a GPU. calls, complete: see read_rows."""
        results = [complete, *map(calls.get, _names(link))]
        before = self._before.get((gpu, link))
        if before is not None and before[0] == results:
            return before[1]
        signals, unread = read_rows(NVLINK, calls, link, complete=complete)
        observation = Observation("nvml", nvlink_target(gpu, link), "read", signals, unread)
        self._before[gpu, link] = (results, observation)
        return observation


@cache
def _names(link: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_named(template, str(link))[0] for row in NVLINK for template, _ in row.calls))
