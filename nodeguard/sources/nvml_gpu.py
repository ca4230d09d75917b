"""Observations of a GPU and its NVLinks from the results of their NVML calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from nodeguard.model.hardware import Hardware
from nodeguard.model.observation import Component, Observation, Status
from nodeguard.model.signal import Scalar
from nodeguard.sources.nvml_results import NvlinkReader, read_rows
from nodeguard.sources.nvml_table import C2C, GPU

_NVLINK_STATE = re.compile(r"nvmlDeviceGetNvLinkState\((\d{1,3})\)")
_C2C_STATUS = re.compile(r"nvmlDeviceGetFieldValues\(171,(\d{1,3})\)")

# Errors that concern a GPU as a whole, the worst first; all others concern this process or the call. Source:
# nvml.h, nvmlReturn_t.
_UNKNOWN_ERROR = "NVML_ERROR_UNKNOWN"
GPU_ERRORS = (
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_POWER",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_IRQ_ISSUE",
    "NVML_ERROR_CORRUPTED_INFOROM",
    "NVML_ERROR_TIMEOUT",
    _UNKNOWN_ERROR,
)

# Characters of a name, and numbers of sockets, slots and trays: more than any machine has.
_MAX_NAME = 64
_MAX_NUMBER = 1024

_SLOT_NUMBERS = (("slot", "slotNumber"), ("tray", "trayIndex"))


def observe_gpu(
    target: str,
    index: int,
    calls: dict[str, Any],
    unanswered: str,
    links: NvlinkReader,
    before: Collection[str],
) -> Iterator[Observation]:
    """Yield the observations of a GPU and its NVLinks.

    index: of NVML. unanswered: the call without an answer, after which nothing was read. before: its links in
    the last complete round.
    """
    complete, names = not unanswered, tuple(calls)
    signals, unread = read_rows(GPU, calls, complete=complete)
    nvlinks = [links.read(target, link, calls, complete=complete) for link in _numbers(_NVLINK_STATE, names)]
    if not signals.get("gpu.mig.enabled"):
        nvlinks = [_unread_if_missing(link) if link.target in before else link for link in nvlinks]
    c2c = [read_rows(C2C, calls, link) for link in _numbers(_C2C_STATUS, names)]
    if complete:
        _count_active("nvlink.active", [(link.signals, link.unreadable) for link in nvlinks], signals, unread)
        _count_active("c2c.active", c2c, signals, unread)
        answering = sum("c2c.active" in link for link, _ in c2c)
        if "gpu.c2c.active" in signals and answering != signals.get("gpu.c2c.count", answering):
            del signals["gpu.c2c.active"]
            unread["gpu.c2c.active"] = f"{answering} links to the CPU gave a status"
    _total("gpu.retired_pages", ("corrected", "uncorrected"), signals, unread)
    errors = [
        str(result["error"]) for result in calls.values() if isinstance(result, dict) and "error" in result
    ]
    signals["gpu.error"] = _gpu_error(errors, len(calls))
    signals["gpu.answers"] = not unanswered
    if unanswered:
        signals["gpu.unanswered"] = unanswered
    status: Status = "hung" if unanswered else "read"
    mode = "mig" if signals.get("gpu.mig.enabled") else ""
    detail = f"{unanswered} gave no answer" if unanswered else ""
    yield Observation(
        "nvml", target, status, signals, unread, component=_component(calls, index), epoch=mode, detail=detail
    )
    counted = isinstance(signals.get("gpu.nvlink.count"), int)
    for link in nvlinks:
        # Without a count of links, a link that fails may not exist.
        if link.signals or (link.unreadable and counted):
            yield link


def _unread_if_missing(link: Observation) -> Observation:
    """Return an earlier NVLink as unread if NVML has no state for it now: a GPU does not lose NVLinks."""
    if link.signals or link.unreadable:
        return link
    return replace(link, unreadable={"nvlink.active": "NVML returns no state for it, but did before"})


def _gpu_error(errors: Collection[str], calls: int) -> str:
    """Return the error of a GPU as a whole, without its prefix, or `none`. errors: of the calls that failed.

    Single calls return UNKNOWN for many reasons; it counts for the GPU if more than half of all calls do.
    """
    candidates = sorted({error for error in errors if error in GPU_ERRORS}, key=GPU_ERRORS.index)
    many = sum(error == _UNKNOWN_ERROR for error in errors) * 2 > calls
    worst = next((error for error in candidates if error != _UNKNOWN_ERROR or many), "")
    return worst.removeprefix("NVML_ERROR_") or "none"


@lru_cache(maxsize=64)
def _numbers(pattern: re.Pattern[str], calls: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers of links in the names of some calls; a round makes those of the last one."""
    return tuple(sorted(int(match[1]) for match in map(pattern.fullmatch, calls) if match))


def _count_active(
    name: str,
    links: Collection[tuple[dict[str, Scalar], dict[str, str]]],
    signals: dict[str, Scalar],
    unread: dict[str, str],
) -> None:
    """Set the number of links with this signal true; unread if it could not be read for one of them."""
    refused = [not_read[name] for _, not_read in links if name in not_read]
    states = [read_of[name] for read_of, _ in links if name in read_of]
    if refused:
        unread[f"gpu.{name}"] = refused[0]
    elif states:
        signals[f"gpu.{name}"] = sum(map(bool, states))


def _total(name: str, parts: Collection[str], signals: dict[str, Scalar], unread: dict[str, str]) -> None:
    """Set the sum of some counts of a GPU; unread if one of them could not be read."""
    names = [f"{name}.{part}" for part in parts]
    refused = [unread[part] for part in names if part in unread]
    counts = [value for part in names if isinstance(value := signals.get(part), int)]
    if refused:
        unread[f"{name}.total"] = refused[0]
    elif len(counts) == len(names):
        signals[f"{name}.total"] = sum(counts)


def _component(calls: dict[str, Any], index: int) -> Component | None:
    uuid = _text(calls, "nvmlDeviceGetUUID")
    if not uuid:
        return None
    hardware = Hardware(
        index=index,
        serial=_text(calls, "nvmlDeviceGetSerial"),
        board_part_number=_text(calls, "nvmlDeviceGetBoardPartNumber"),
        module_id=_small_number(calls.get("nvmlDeviceGetModuleId")),
        slot=_slot(calls.get("nvmlDeviceGetPlatformInfo")),
    )
    return Component(uuid, _text(calls, "nvmlDeviceGetName"), hardware)


def _text(calls: dict[str, Any], call: str) -> str:
    text = calls.get(call)
    return text[:_MAX_NAME] if isinstance(text, str) else ""


def _small_number(value: object) -> int | None:
    """Return a number of a socket, slot or tray; None for a value that means none, such as all bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < _MAX_NUMBER else None


def _slot(info: object) -> str:
    """Return the slot in the chassis as text: `slot 5, tray 4 of chassis 1820125`; empty if not known."""
    if not isinstance(info, dict) or not (chassis := _text(info, "chassisSerialNumber").strip()):
        return ""
    numbers = {name: _small_number(info.get(key)) for name, key in _SLOT_NUMBERS}
    places = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
    return f"{places} of chassis {chassis}" if places else ""
