"""NVML: the GPUs as their driver tells of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodeguard.model.observation import Event, Observation, Part, Status
from nodeguard.model.signal import Scalar, Signal, named
from nodeguard.model.slot import NODE, gpu, label, nvlink
from nodeguard.sources.machine import Machine
from nodeguard.sources.nvml_table import GPU, NVLINK, Row
from nodeguard.worker.answer import SYSTEM, Answer, Entry

_FIELD = re.compile(r"fields\((\d+)(?:,(\d+|\{link\}))?\)")
_LINK_STATE = re.compile(r"nvmlDeviceGetNvLinkState\((\d+)\)")
_HANDLE = "nvmlDeviceGetHandleByIndex"
_XID_EVENT = 8

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
_RETURNS = {4: "NO_PERMISSION", 10: "TIMEOUT", 15: "GPU_IS_LOST", 16: "RESET_REQUIRED", 21: "NO_DATA"}
_NO_SUCH = frozenset({2, 3, 6, 13, 25, 26})
_REASONS = {
    "NVML_ERROR_NO_PERMISSION": "permission denied: run as root",
    "NVML_ERROR_GPU_IS_LOST": "the GPU is lost",
    "NVML_ERROR_RESET_REQUIRED": "the GPU must be reset first",
    "NVML_ERROR_TIMEOUT": "the driver timed out",
    "NVML_ERROR_NO_DATA": "no sample yet",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver's library and kernel module differ in version",
}


class Nvml:
    """Reads NVML through the worker's lane."""

    name = "nvml"
    interval = 10.0
    deadline = 120.0
    paths: tuple[str, ...] = ("nvml.json",)
    signals = named(
        Signal("nvml.library", "state", "whether the driver's library is on the machine"),
        Signal("nvml.ready", "state", "whether NVML initialises"),
        Signal("nvml.error", "state", "NVML's error on initialising, without its prefix, or `none`"),
        Signal("nvml.answers", "state", "whether every call was answered in time"),
        Signal("nvml.hung", "state", "whether a call hangs that not even SIGKILL ends"),
        Signal("nvml.unanswered", "state", "the call that was not answered"),
        Signal("nvml.driver_version", "state", "version of the driver, as its library says"),
        Signal("nvml.version", "state", "version of the library"),
        Signal("nvml.confidential", "state", "whether confidential computing is on"),
        Signal("nvml.confidential_ready", "state", "whether the GPUs accept confidential work"),
        Signal("gpu.answers", "state", "whether the GPU's calls were answered in time"),
        Signal("gpu.unanswered", "state", "the GPU's call that was not answered"),
        Signal("gpu.error", "state", "NVML's error for the GPU as a whole, without its prefix, or `none`"),
        Signal("gpu.handles_refused", "state", "GPUs that NVML counts but gives no handle for"),
        Signal("gpu.handle_error", "state", "NVML's error for the latest of these"),
        Signal("gpu.nvlink.active", "state", "NVLinks that are active"),
        Signal("gpu.c2c.active", "state", "links to the CPU that are active"),
        Signal("gpu.xid.line", "event", "an Xid as the driver said it", fields=("xid", "gi", "ci", "rest")),
        *(row.signal for row in (*GPU, *NVLINK)),
    )

    def __init__(self) -> None:
        self._slots: dict[int, str] = {}

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round; see Source.read."""
        answer = machine.nvml()
        if answer.missing:
            yield Observation(self.name, NODE, "absent", {"nvml.library": False}, detail=answer.missing)
            return
        scopes = _by_scope(answer)
        system = scopes.pop(SYSTEM, {})
        handled = {index: calls for index, calls in scopes.items() if _HANDLE not in calls}
        # A device that does not say who it is, at rest or lost, is the one that stood at its index.
        self._slots |= {index: slot for index, calls in handled.items() if (slot := _slot(calls))}
        yield _node(answer, system, scopes, self._slots)
        silent = {entry.scope: entry.call for entry in (*answer.resting, *answer.stalled)}
        if answer.hung is not None:
            silent[answer.hung.scope] = answer.hung.call
        silent.pop(SYSTEM, None)
        for index in sorted(handled.keys() | silent.keys()):
            slot = self._slots.setdefault(index, gpu(f"index-{index}"))
            yield from _gpu(slot, scopes.get(index, {}), silent.get(index, ""))
        yield from self._events(machine)

    def _events(self, machine: Machine) -> Iterator[Observation]:
        for event in machine.nvml_events():
            slot = self._slots.get(event["device"])
            if event["type"] == _XID_EVENT and slot is not None:
                xid = event["data"]
                line = Event(
                    "gpu.xid.line", machine.now().mono, f"NVML event: Xid {xid}", {"xid": xid, "rest": ""}
                )
                yield Observation(self.name, slot, events=(line,))


def _by_scope(answer: Answer) -> dict[int, dict[str, Any]]:
    scopes: dict[int, dict[str, Any]] = {}
    for entry in answer.entries:
        scopes.setdefault(entry.scope, {})[entry.call] = entry.result
    return scopes


def _slot(calls: dict[str, Any]) -> str | None:
    for name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo"):
        found = calls.get(name)
        if isinstance(found, dict) and isinstance(found.get("busId"), str):
            return gpu(found["busId"])
    return None


def _node(
    answer: Answer, system: dict[str, Any], scopes: dict[int, dict[str, Any]], slots: dict[int, str]
) -> Observation:
    """What NVML says as a whole: whether it is there, initialises, answers."""
    init = _error(system.get("nvmlInit"))
    signals: dict[str, Scalar] = {
        "nvml.library": True,
        "nvml.answers": not (answer.stalled or answer.resting) and answer.hung is None,
        "nvml.hung": answer.hung is not None,
    }
    late = answer.hung or next(iter((*answer.stalled, *answer.resting)), None)
    if late is not None:
        signals["nvml.unanswered"] = _told(late, slots)
    if answer.hung is None:
        signals["nvml.ready"] = not init
        signals["nvml.error"] = init.removeprefix("NVML_ERROR_") or "none"
    for name, call in _SYSTEM.items():
        value = system.get(call)
        if isinstance(value, str) and value.isprintable():
            signals[name] = value
    ready = system.get("nvmlSystemGetConfComputeGpusReadyState")
    state = system.get("nvmlSystemGetConfComputeState")
    if isinstance(state, dict) and isinstance(ready, int):
        signals["nvml.confidential"] = bool(state.get("ccFeature"))
        signals["nvml.confidential_ready"] = bool(ready)
    refused = [_error(calls[_HANDLE]) for calls in scopes.values() if _HANDLE in calls]
    signals["gpu.handles_refused"] = len(refused)
    signals["gpu.handle_error"] = refused[-1].removeprefix("NVML_ERROR_") if refused else "none"
    if answer.hung is not None:
        detail = f"{_told(answer.hung, slots)} does not return, not even to SIGKILL"
        return Observation("nvml", NODE, "hung", signals, detail=detail)
    if init:
        return Observation("nvml", NODE, "failed", signals, detail=_REASONS.get(init, init))
    if any(entry.scope == SYSTEM for entry in answer.stalled):
        return Observation(
            "nvml", NODE, "hung", signals, detail=f"{signals['nvml.unanswered']} met no answer"
        )
    return Observation("nvml", NODE, "read", signals)


_SYSTEM = {"nvml.driver_version": "nvmlSystemGetDriverVersion", "nvml.version": "nvmlSystemGetNVMLVersion"}


def _told(entry: Entry, slots: dict[int, str]) -> str:
    """A call as a person reads it, with the GPU that it was about."""
    if entry.scope == SYSTEM:
        return entry.call
    return f"{entry.call} of {label(slots.get(entry.scope, f'gpu/index-{entry.scope}'))}"


def _gpu(slot: str, calls: dict[str, Any], unanswered: str) -> Iterator[Observation]:
    """A GPU and its NVLinks. unanswered: the call that met no answer, after which nothing more was read."""
    signals, unread = _read(GPU, calls, None, complete=not unanswered)
    links = sorted(int(found[1]) for call in calls if (found := _LINK_STATE.match(call)))
    observed = []
    for link in links:
        of_link, not_of_link = _read(NVLINK, calls, link, complete=not unanswered)
        if of_link or not_of_link:
            observed.append(Observation("nvml", nvlink(slot, link), "read", of_link, not_of_link))
    if not unanswered:
        if any("nvlink.active" in one.signals for one in observed):
            signals["gpu.nvlink.active"] = sum(one.signals.get("nvlink.active") is True for one in observed)
        c2c = [_result(calls, f"fields(171,{link})") for link in range(int(signals.get("gpu.c2c.count", 0)))]
        if c2c:
            signals["gpu.c2c.active"] = c2c.count(1)
    errors = {_error(result) for result in calls.values()}
    broken = next(
        (word for word in ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED") if word in errors), ""
    )
    signals["gpu.error"] = broken.removeprefix("NVML_ERROR_") or "none"
    signals["gpu.answers"] = not unanswered
    if unanswered:
        signals["gpu.unanswered"] = unanswered
    status: Status = "hung" if unanswered else "read"
    mode = "mig" if signals.get("gpu.mig.enabled") else ""
    detail = f"{unanswered} met no answer" if unanswered else ""
    yield Observation("nvml", slot, status, signals, unread, part=_part(calls), epoch=mode, detail=detail)
    yield from observed


def _part(calls: dict[str, Any]) -> Part | None:
    words = [calls.get(name) for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetSerial")]
    uuid, name, serial = (word if isinstance(word, str) else "" for word in words)
    return Part(uuid, name, serial) if uuid else None


def _read(
    rows: tuple[Row, ...], calls: dict[str, Any], link: int | None, *, complete: bool
) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Signals of some rows, and why those could not be read that should have been."""
    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    for row in rows:
        name = row.signal.name
        why = "" if complete else "a call before it met no answer"
        for call, item in row.calls:
            result = _result(calls, call if link is None else call.replace("{link}", str(link)))
            error = _error(result)
            if result is None or error in _NOT_THERE:
                continue
            if error:
                why = _REASONS.get(error, error)
                continue
            try:
                signals[name] = row.convert(result if item is None else result[item])
            except (ValueError, TypeError, LookupError, OverflowError):
                why = f"{call} says {str(result)[:60]!r}"
                continue
            why = ""
            break
        if why:
            unread[name] = why
    return signals, unread


def _result(calls: dict[str, Any], call: str) -> Any:
    """Result of a call as the table writes it; a field's value is taken out of its envelope."""
    field = _FIELD.match(call)
    if field is None:
        return calls.get(call)
    result = calls.get(f"nvmlDeviceGetFieldValues({field[1]},{field[2] or 0})")
    if not isinstance(result, dict) or "error" in result:
        return result
    code = result.get("nvmlReturn", 0)
    if code:
        return None if code in _NO_SUCH else {"error": f"NVML_ERROR_{_RETURNS.get(code, code)}"}
    return result.get("value")


def _error(result: Any) -> str:
    """Name of the error that a result is, empty where it is none."""
    return str(result["error"]) if isinstance(result, dict) and "error" in result else ""
