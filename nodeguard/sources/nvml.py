"""NVML: the GPUs as their driver tells of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from nodeguard.model.observation import DETACHED, Component, Event, Observation, Status
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE, bus_address, gpu_index, gpu_target, target_label, unnamed_gpu_target
from nodeguard.sources.machine import Machine
from nodeguard.sources.nvml_results import NvlinkReader, error_name, nvml_reason, read_rows
from nodeguard.sources.nvml_table import C2C, GPU, NVLINK
from nodeguard.worker.nvml_calls import DEVICE_COUNT
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult

_NVLINK_STATE = re.compile(r"nvmlDeviceGetNvLinkState\((\d{1,3})\)")
_C2C_STATUS = re.compile(r"nvmlDeviceGetFieldValues\(171,(\d{1,3})\)")
_HANDLE = "nvmlDeviceGetHandleByIndex"
_XID_EVENT = 8

# Errors that say something of a GPU as a whole, the worst first; any other is one of this process or of the
# call. Source: nvml.h, nvmlReturn_t.
_VAGUE = "NVML_ERROR_UNKNOWN"
_WHOLE = (
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_POWER",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_IRQ_ISSUE",
    "NVML_ERROR_CORRUPTED_INFOROM",
    "NVML_ERROR_TIMEOUT",
    _VAGUE,
)
# Errors of a handle that speak of the GPU.
_OF_A_HANDLE = (*_WHOLE, "NVML_ERROR_NOT_FOUND")


class NvmlSource:
    """Reads NVML through the worker's lane."""

    name = "nvml"
    interval = 10.0
    deadline = 120.0
    paths: tuple[str, ...] = ("nvml.json",)
    signals = signals_by_name(
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
        Signal(
            "gpu.handle_error", "state", "NVML's error for the worst of these, without its prefix, or `none`"
        ),
        Signal("gpu.handles_hidden", "state", "GPUs that NVML counts and that this process may not look at"),
        Signal("gpu.retired_pages.total", "state", "pages retired for errors of either kind"),
        Signal("gpu.nvlink.active", "state", "NVLinks that are active"),
        Signal("gpu.c2c.active", "state", "links to the CPU that are active"),
        Signal("gpu.xid.line", "event", "an Xid as the driver said it", fields=("xid", "gi", "ci", "rest")),
        *(row.signal for row in (*GPU, *NVLINK)),
    )

    def __init__(self) -> None:
        # Slots of GPUs to be left alone, NODE for all of them. To be set between two rounds, by anybody.
        self.detached: frozenset[str] = frozenset()
        self._slots: dict[int, str] = {}
        self._of_uuid: dict[str, str] = {}
        self._links: dict[str, frozenset[str]] = {}
        self._nvlinks = NvlinkReader()

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round; see Source.read."""
        yield from self._round(machine)
        yield from self._events(machine)

    def _round(self, machine: Machine) -> Iterator[Observation]:
        left = self.detached
        known = {slot: index for index, slot in self._slots.items()}
        if not known.keys() >= left:
            # All of them, or one whose index is not known yet: to find that would be to open it.
            yield Observation(self.name, NODE, "released", detail=DETACHED)
            return
        answer = machine.nvml(leave=frozenset(known[slot] for slot in left))
        if answer.missing:
            yield Observation(self.name, NODE, "absent", {"nvml.library": False}, detail=answer.missing)
            return
        if answer.failed and not answer.results:
            yield Observation(self.name, NODE, "failed", detail=answer.failed)
            return
        scopes = _by_scope(answer)
        system = scopes.pop(SYSTEM, {})
        handled = {index: calls for index, calls in scopes.items() if _HANDLE not in calls}
        silent = {entry.scope: entry.call for entry in (*answer.resting, *answer.stalled)}
        if answer.hung is not None:
            silent[answer.hung.scope] = answer.hung.call
        silent.pop(SYSTEM, None)
        names = self._names(handled, sorted(handled.keys() | silent.keys()))
        self._slots |= names
        yield replace(_node(answer, system, scopes, self._slots), unlisted=_unlisted(names))
        for index, slot in sorted(names.items()):
            calls, unanswered = scopes.get(index, {}), silent.get(index, "")
            observed = list(_gpu(slot, calls, unanswered, self._nvlinks, self._links.get(slot, ())))
            yield from observed
            yield from self._unreached(observed)
        for slot in sorted(left):
            for place in (slot, *sorted(self._links.get(slot, ()))):
                yield Observation(self.name, place, "released", detail=DETACHED)

    def _names(self, handled: dict[int, dict[str, Any]], indices: Iterable[int]) -> dict[int, str]:
        """The slot of each device, by its index.

        A device that does not give its PCI address is the one that had this UUID before, or else this index;
        unless another device says that it sits there.
        """
        names = {index: slot for index, calls in handled.items() if (slot := _slot(calls))}
        self._of_uuid |= {uuid: slot for index, slot in names.items() if (uuid := _uuid(handled[index]))}
        for index in indices:
            if index not in names:
                before = self._of_uuid.get(_uuid(handled.get(index, {}))) or self._slots.get(index)
                names[index] = (
                    before if before and before not in names.values() else unnamed_gpu_target(index)
                )
        return names

    def _unreached(self, observed: list[Observation]) -> Iterator[Observation]:
        """The NVLinks of a GPU that fell silent before they were asked: not read, but not gone either."""
        whole, *links = observed
        if whole.status == "read":
            self._links[whole.target] = frozenset(link.target for link in links)
            return
        read_now = {link.target for link in links}
        for slot in sorted(self._links.get(whole.target, ())):
            if slot not in read_now:
                yield Observation(self.name, slot, "hung", detail=whole.detail)

    def _events(self, machine: Machine) -> Iterator[Observation]:
        for event in machine.nvml_events():
            # Its own address counts: the GPUs may have other indices since, after a restart of the worker.
            slot = gpu_target(event.address) if bus_address(event.address) else self._slots.get(event.device)
            if event.type == _XID_EVENT and slot is not None:
                xid, at = event.data, machine.now().mono if event.at is None else event.at
                line = Event("gpu.xid.line", at, f"NVML event: Xid {xid}", {"xid": xid, "rest": ""})
                yield Observation(self.name, slot, events=(line,))


def _by_scope(answer: LaneResult) -> dict[int, dict[str, Any]]:
    scopes: dict[int, dict[str, Any]] = {}
    for scope, entries in groupby(answer.results, attrgetter("scope")):
        scopes.setdefault(scope, {}).update({entry.call: entry.result for entry in entries})
    return scopes


def _slot(calls: dict[str, Any]) -> str | None:
    for name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo"):
        found = calls.get(name)
        address = found.get("busId") if isinstance(found, dict) else None
        if isinstance(address, str) and bus_address(address):
            return gpu_target(address)
    return None


def _uuid(calls: dict[str, Any]) -> str:
    uuid = calls.get("nvmlDeviceGetUUID")
    return uuid if isinstance(uuid, str) else ""


def _unlisted(names: dict[int, str]) -> dict[str, str]:
    """Why NVML's list of GPUs is not whole: a GPU without an address may be any of those on the bus."""
    unnamed = [str(index) for index, slot in sorted(names.items()) if gpu_index(slot) is not None]
    return {"gpu": f"NVML gives no PCI address for GPU {', '.join(unnamed)}"} if unnamed else {}


def _node(
    answer: LaneResult, system: dict[str, Any], scopes: dict[int, dict[str, Any]], slots: dict[int, str]
) -> Observation:
    """What NVML says as a whole: whether it is there, initialises, answers."""
    init = error_name(system.get("nvmlInit"))
    late = answer.hung or next(iter((*answer.stalled, *answer.resting)), None)
    whole = answer.interrupted is None and not answer.failed
    signals: dict[str, Scalar] = {"nvml.library": True, "nvml.hung": answer.hung is not None}
    if late is not None:
        signals["nvml.unanswered"] = _told(late, slots)
    # What was not asked has neither answered nor kept silent.
    if whole or late is not None:
        signals["nvml.answers"] = late is None
    if answer.hung is None and (whole or DEVICE_COUNT in system):
        signals["nvml.ready"] = not init
        signals["nvml.error"] = init.removeprefix("NVML_ERROR_") or "none"
    for name, call in _SYSTEM.items():
        value = system.get(call)
        if isinstance(value, str) and value.isprintable():
            signals[name] = value
    ready = system.get("nvmlSystemGetConfComputeGpusReadyState")
    state = system.get("nvmlSystemGetConfComputeState")
    if isinstance(state, dict) and not error_name(state) and isinstance(ready, int):
        signals["nvml.confidential"] = bool(state.get("ccFeature"))
        signals["nvml.confidential_ready"] = bool(ready)
    errors = [error_name(calls[_HANDLE]) for calls in scopes.values() if _HANDLE in calls]
    refused = sorted((error for error in errors if error in _OF_A_HANDLE), key=_OF_A_HANDLE.index)
    hidden = [error for error in errors if error not in _OF_A_HANDLE]
    status, detail = _ended(answer, system, slots)
    unread = {"gpu.handles_refused": nvml_reason(hidden[0])} if hidden and not refused else {}
    # That no handle was refused is known only where each was asked for.
    if errors or status == "read":
        signals["gpu.handles_hidden"] = len(hidden)
        signals["gpu.handle_error"] = refused[0].removeprefix("NVML_ERROR_") if refused else "none"
        if not unread:
            signals["gpu.handles_refused"] = len(refused)
    return Observation("nvml", NODE, status, signals, unread, detail=detail)


def _ended(answer: LaneResult, system: dict[str, Any], slots: dict[int, str]) -> tuple[Status, str]:
    """How a round ended as a whole, and why not well."""
    if answer.hung is not None:
        return "hung", f"{_told(answer.hung, slots)} does not return, not even to SIGKILL"
    stalled = next((entry.call for entry in answer.stalled if entry.scope == SYSTEM), "")
    if stalled:
        return "hung", f"{stalled} met no answer"
    if answer.interrupted is not None:
        return "hung", f"there was no time for what comes after {_told(answer.interrupted, slots)}"
    if answer.failed:
        return "failed", answer.failed
    for call in ("nvmlInit", DEVICE_COUNT):
        if error := error_name(system.get(call)):
            return "failed", nvml_reason(error) if call == "nvmlInit" else f"{call}: {nvml_reason(error)}"
    return "read", ""


_SYSTEM = {"nvml.driver_version": "nvmlSystemGetDriverVersion", "nvml.version": "nvmlSystemGetNVMLVersion"}


def _told(entry: CallResult, slots: dict[int, str]) -> str:
    """A call as a person reads it, with the GPU that it was about."""
    if entry.scope == SYSTEM:
        return entry.call
    return f"{entry.call} of {target_label(slots.get(entry.scope, unnamed_gpu_target(entry.scope)))}"


def _gpu(
    slot: str, calls: dict[str, Any], unanswered: str, links: NvlinkReader, before: Collection[str]
) -> Iterator[Observation]:
    """A GPU and its NVLinks.

    unanswered: the call that met no answer, after which nothing more was read. before: its links at the last
    round that came to its end.
    """
    complete = not unanswered
    signals, unread = read_rows(GPU, calls, complete=complete)
    nvlinks = [links.read(slot, link, calls, complete=complete) for link in _numbers(_NVLINK_STATE, calls)]
    if not signals.get("gpu.mig.enabled"):
        nvlinks = [_not_vanished(link) if link.target in before else link for link in nvlinks]
    c2c = [read_rows(C2C, calls, link) for link in _numbers(_C2C_STATUS, calls)]
    if complete:
        _count_active("nvlink.active", [(link.signals, link.unreadable) for link in nvlinks], signals, unread)
        _count_active("c2c.active", c2c, signals, unread)
        answering = sum("c2c.active" in link for link, _ in c2c)
        if "gpu.c2c.active" in signals and answering != signals.get("gpu.c2c.count", answering):
            del signals["gpu.c2c.active"]
            unread["gpu.c2c.active"] = f"{answering} links to the CPU gave a status"
    _total("gpu.retired_pages", ("corrected", "uncorrected"), signals, unread)
    signals["gpu.error"] = _whole(list(filter(None, map(error_name, calls.values()))), len(calls))
    signals["gpu.answers"] = not unanswered
    if unanswered:
        signals["gpu.unanswered"] = unanswered
    status: Status = "hung" if unanswered else "read"
    mode = "mig" if signals.get("gpu.mig.enabled") else ""
    detail = f"{unanswered} met no answer" if unanswered else ""
    yield Observation(
        "nvml", slot, status, signals, unread, component=_part(calls), epoch=mode, detail=detail
    )
    counted = isinstance(signals.get("gpu.nvlink.count"), int)
    for link in nvlinks:
        # Where the links are not counted, one that fails may well be none.
        if link.signals or (link.unreadable and counted):
            yield link


def _not_vanished(link: Observation) -> Observation:
    """An NVLink that was there: a GPU does not lose one, so where NVML has no state for it, it is unread."""
    if link.signals or link.unreadable:
        return link
    return replace(link, unread={"nvlink.active": "NVML gives no state for it, and did before"})


def _whole(errors: Collection[str], asked: int) -> str:
    """The error of a GPU as a whole, without its prefix, or `none`. errors: of the calls that failed.

    UNKNOWN is what single calls answer for many a reason; it speaks of the GPU where half of all calls do.
    """
    found = sorted({error for error in errors if error in _WHOLE}, key=_WHOLE.index)
    many = sum(error == _VAGUE for error in errors) * 2 > asked
    word = next((error for error in found if error != _VAGUE or many), "")
    return word.removeprefix("NVML_ERROR_") or "none"


def _numbers(of: re.Pattern[str], calls: Iterable[str]) -> list[int]:
    return sorted(number for call in calls if (number := _number(of.pattern, call)) is not None)


@lru_cache(8192)
def _number(of: str, call: str) -> int | None:
    found = re.fullmatch(of, call)
    return int(found[1]) if found else None


def _count_active(
    name: str,
    links: Collection[tuple[dict[str, Scalar], dict[str, str]]],
    signals: dict[str, Scalar],
    unread: dict[str, str],
) -> None:
    """Count the links of a GPU whose signal of this name is true, unless one of them could not be read."""
    refused = [not_read[name] for _, not_read in links if name in not_read]
    states = [read_of[name] for read_of, _ in links if name in read_of]
    if refused:
        unread[f"gpu.{name}"] = refused[0]
    elif states:
        signals[f"gpu.{name}"] = sum(map(bool, states))


def _total(name: str, parts: Collection[str], signals: dict[str, Scalar], unread: dict[str, str]) -> None:
    """Sum some counts of a GPU, by the last word of their names, unless one of them could not be read."""
    names = [f"{name}.{part}" for part in parts]
    refused = [unread[one] for one in names if one in unread]
    counts = [value for one in names if isinstance(value := signals.get(one), int)]
    if refused:
        unread[f"{name}.total"] = refused[0]
    elif len(counts) == len(names):
        signals[f"{name}.total"] = sum(counts)


def _part(calls: dict[str, Any]) -> Component | None:
    words = [calls.get(name) for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetSerial")]
    uuid, name, serial = (word if isinstance(word, str) else "" for word in words)
    return Component(uuid, name, serial) if uuid else None
