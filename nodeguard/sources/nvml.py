"""Source `nvml`: GPUs and NVLinks as the NVIDIA driver reports them, through the NVML lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.observation import DETACHED, Event, Observation, Status
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE, bus_address, gpu_index, gpu_target, target_label, unnamed_gpu_target
from nodeguard.sources.machine import Machine
from nodeguard.sources.nvml_gpu import GPU_ERRORS, observe_gpu
from nodeguard.sources.nvml_results import NvlinkReader, error_name, nvml_reason
from nodeguard.sources.nvml_table import GPU, NVLINK
from nodeguard.sources.process_owner import GpuProcesses
from nodeguard.sources.source import Source, source
from nodeguard.worker.nvml_calls import DEVICE_COUNT
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult

_HANDLE = "nvmlDeviceGetHandleByIndex"
_XID_EVENT = 8

# Errors of a handle that concern the GPU.
_HANDLE_ERRORS = (*GPU_ERRORS, "NVML_ERROR_NOT_FOUND")


class GpuIdentity(Struct, frozen=True):
    """The names of a GPU in NVML: its index, such as `0`, and its UUID; empty if unknown."""

    index: str = ""
    uuid: str = ""


@source
class NvmlSource:
    """Reads NVML through its worker lane."""

    name = "nvml"
    interval = 10.0
    deadline = 120.0
    paths: tuple[str, ...] = ("nvml.json",)
    signals = signals_by_name(
        Signal("nvml.library", "state", "whether the driver's library is on the machine"),
        Signal("nvml.ready", "state", "whether NVML initialises"),
        Signal("nvml.error", "state", "NVML's error on initialising, without its prefix, or `none`"),
        Signal("nvml.answers", "state", "whether every call was answered in time"),
        Signal("nvml.hung", "state", "whether a call hangs in a process that does not end on SIGKILL"),
        Signal("nvml.unanswered", "state", "the call that was not answered"),
        Signal("nvml.driver_version", "state", "version of the driver, from its library"),
        Signal("nvml.version", "state", "version of the library"),
        Signal("nvml.confidential", "state", "whether confidential computing is on"),
        Signal("nvml.confidential_ready", "state", "whether the GPUs accept confidential work"),
        Signal("gpu.answers", "state", "whether the GPU's calls were answered in time"),
        Signal("gpu.unanswered", "state", "the GPU's call that was not answered"),
        Signal("gpu.error", "state", "NVML's error for the GPU as a whole, without its prefix, or `none`"),
        Signal("gpu.handles_refused", "state", "GPUs that NVML counts but returns no handle for"),
        Signal(
            "gpu.handle_error", "state", "NVML's error for the worst of these, without its prefix, or `none`"
        ),
        Signal("gpu.handles_hidden", "state", "GPUs that NVML counts and that this process may not access"),
        Signal("gpu.retired_pages.total", "state", "pages retired for errors of either kind"),
        Signal("gpu.nvlink.active", "state", "NVLinks that are active"),
        Signal("gpu.c2c.active", "state", "links to the CPU that are active"),
        Signal("gpu.process_owners", "state", "compute processes with the opaque keys of user and job"),
        Signal("gpu.xid.line", "event", "an Xid from the driver", fields=("xid", "gi", "ci", "rest")),
        *(row.signal for row in (*GPU, *NVLINK)),
    )

    def __init__(self) -> None:
        # Detached GPUs: targets that a round does not touch, NODE for all. Set it between two rounds.
        self.detached: frozenset[str] = frozenset()
        self._targets: dict[int, str] = {}
        self._by_uuid: dict[str, str] = {}
        self._links: dict[str, frozenset[str]] = {}
        self._nvlinks = NvlinkReader()
        self._processes = GpuProcesses()

    def targets_by_name(self) -> dict[str, str]:
        """Return the targets of the GPUs that were read, by index and by UUID."""
        return {**{str(index): target for index, target in self._targets.items()}, **self._by_uuid}

    def identities(self) -> dict[str, GpuIdentity]:
        """Return the index and the UUID of the GPUs that were read, by target."""
        uuids = {target: uuid for uuid, target in self._by_uuid.items()}
        return {
            target: GpuIdentity(str(index), uuids.get(target, "")) for index, target in self._targets.items()
        }

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        yield from self._round(machine)
        yield from self._events(machine)

    def _round(self, machine: Machine) -> Iterator[Observation]:
        detached = self.detached
        indices = {target: index for index, target in self._targets.items()}
        if not indices.keys() >= detached:
            # All GPUs, or one with an unknown index: a round that finds the index would open the GPU.
            yield Observation(self.name, NODE, "detached", detail=DETACHED)
            return
        answer = machine.nvml(leave=frozenset(indices[target] for target in detached))
        if answer.missing:
            yield Observation(self.name, NODE, "absent", {"nvml.library": False}, detail=answer.missing)
            return
        if answer.failed and not answer.results:
            yield Observation(self.name, NODE, "failed", detail=answer.failed)
            return
        scopes = _by_scope(answer)
        system = scopes.pop(SYSTEM, {})
        handled = {index: calls for index, calls in scopes.items() if _HANDLE not in calls}
        unanswered_calls = {entry.scope: entry.call for entry in (*answer.skipped, *answer.stalled)}
        if answer.hung is not None:
            unanswered_calls[answer.hung.scope] = answer.hung.call
        unanswered_calls.pop(SYSTEM, None)
        names = self._names(handled, sorted(handled.keys() | unanswered_calls.keys()))
        self._targets |= names
        yield replace(_node(answer, system, scopes, self._targets), unlisted=_unlisted(names))
        for index, target in sorted(names.items()):
            calls, unanswered = scopes.get(index, {}), unanswered_calls.get(index, "")
            observed = list(
                observe_gpu(target, index, calls, unanswered, self._nvlinks, self._links.get(target, ()))
            )
            if (owners := self._processes.describe(machine, target, calls)) is not None:
                observed[0].signals["gpu.process_owners"] = owners
            yield from observed
            yield from self._unreached(observed)
        for gpu in sorted(detached):
            for target in (gpu, *sorted(self._links.get(gpu, ()))):
                yield Observation(self.name, target, "detached", detail=DETACHED)

    def _names(self, handled: dict[int, dict[str, Any]], indices: Iterable[int]) -> dict[int, str]:
        """Return the target of each device, by its index.

        A device without a PCI address of its own gets the earlier target of its UUID, else the earlier target
        of its index. If another device has that target, the device is named by its index.
        """
        targets = {index: target for index, calls in handled.items() if (target := _pci_gpu_target(calls))}
        devices = Counter(targets.values())
        names = {index: target for index, target in targets.items() if devices[target] == 1}
        self._by_uuid |= {uuid: target for index, target in names.items() if (uuid := _uuid(handled[index]))}
        for index in indices:
            if index not in names:
                before = self._by_uuid.get(_uuid(handled.get(index, {}))) or self._targets.get(index)
                names[index] = (
                    before if before and before not in names.values() else unnamed_gpu_target(index)
                )
        return names

    def _unreached(self, observed: list[Observation]) -> Iterator[Observation]:
        """Yield as unread the NVLinks of a GPU that stopped answering before they were read."""
        of_gpu, *links = observed
        if of_gpu.status == "read":
            self._links[of_gpu.target] = frozenset(link.target for link in links)
            return
        read_now = {link.target for link in links}
        for target in sorted(self._links.get(of_gpu.target, ())):
            if target not in read_now:
                yield Observation(self.name, target, "hung", detail=of_gpu.detail)

    def _events(self, machine: Machine) -> Iterator[Observation]:
        for event in machine.nvml_events():
            # Use the event's own address: after a restart of the worker, the GPUs may have other indices.
            target = (
                gpu_target(event.address) if bus_address(event.address) else self._targets.get(event.device)
            )
            if event.type == _XID_EVENT and target is not None:
                xid, at = event.data, machine.now().mono if event.at is None else event.at
                line = Event("gpu.xid.line", at, f"NVML event: Xid {xid}", {"xid": xid, "rest": ""})
                yield Observation(self.name, target, events=(line,))


def gpu_identities(sources: Iterable[Source]) -> dict[str, GpuIdentity]:
    """Return the names of the GPUs that NVML has listed, by target; empty without the source `nvml`."""
    return next((source.identities() for source in sources if isinstance(source, NvmlSource)), {})


def _by_scope(answer: LaneResult) -> dict[int, dict[str, Any]]:
    scopes: dict[int, dict[str, Any]] = {}
    for scope, entries in groupby(answer.results, attrgetter("scope")):
        scopes.setdefault(scope, {}).update({entry.call: entry.result for entry in entries})
    return scopes


def _pci_gpu_target(calls: dict[str, Any]) -> str | None:
    for name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo"):
        info = calls.get(name)
        address = info.get("busId") if isinstance(info, dict) else None
        if isinstance(address, str) and bus_address(address):
            return gpu_target(address)
    return None


def _uuid(calls: dict[str, Any]) -> str:
    uuid = calls.get("nvmlDeviceGetUUID")
    return uuid if isinstance(uuid, str) else ""


def _unlisted(names: dict[int, str]) -> dict[str, str]:
    """Return why NVML's list of GPUs is incomplete: a GPU without its own address may be any on the bus."""
    unnamed = [str(index) for index, target in sorted(names.items()) if gpu_index(target) is not None]
    return {"gpu": f"NVML gives no PCI address of its own for GPU {', '.join(unnamed)}"} if unnamed else {}


def _node(
    answer: LaneResult, system: dict[str, Any], scopes: dict[int, dict[str, Any]], targets: dict[int, str]
) -> Observation:
    """Return the observation of the node: whether NVML exists, initialises and answers."""
    init = error_name(system.get("nvmlInit"))
    late = answer.hung or next(iter((*answer.stalled, *answer.skipped)), None)
    is_complete = answer.interrupted is None and not answer.failed
    signals: dict[str, Scalar] = {"nvml.library": True, "nvml.hung": answer.hung is not None}
    if late is not None:
        signals["nvml.unanswered"] = _call_text(late, targets)
    # Without a late call, only a complete round shows that NVML answers.
    if is_complete or late is not None:
        signals["nvml.answers"] = late is None
    if answer.hung is None and (is_complete or DEVICE_COUNT in system):
        signals["nvml.ready"] = not init
        signals["nvml.error"] = init.removeprefix("NVML_ERROR_") or "none"
    for name, call in _SYSTEM.items():
        value = system.get(call)
        if isinstance(value, str) and value.isprintable():
            signals[name] = value
    ready = system.get("nvmlSystemGetConfComputeGpusReadyState")
    state = system.get("nvmlSystemGetConfComputeState")
    # nvml.h: NVML_CC_SYSTEM_FEATURE_*, NVML_CC_ACCEPTING_CLIENT_REQUESTS_*
    if isinstance(state, dict) and state.get("ccFeature") in (0, 1) and ready in (0, 1):
        signals["nvml.confidential"] = bool(state["ccFeature"])
        signals["nvml.confidential_ready"] = bool(ready)
    errors = [error_name(calls[_HANDLE]) for calls in scopes.values() if _HANDLE in calls]
    refused = sorted((error for error in errors if error in _HANDLE_ERRORS), key=_HANDLE_ERRORS.index)
    hidden = [error for error in errors if error not in _HANDLE_ERRORS]
    status, detail = _round_status(answer, system, targets)
    unread = {"gpu.handles_refused": nvml_reason(hidden[0])} if hidden and not refused else {}
    # Only a complete round shows that no handle was refused.
    if errors or status == "read":
        signals["gpu.handles_hidden"] = len(hidden)
        signals["gpu.handle_error"] = refused[0].removeprefix("NVML_ERROR_") if refused else "none"
        if not unread:
            signals["gpu.handles_refused"] = len(refused)
    return Observation("nvml", NODE, status, signals, unread, detail=detail)


def _round_status(answer: LaneResult, system: dict[str, Any], targets: dict[int, str]) -> tuple[Status, str]:
    """Return the status of a round as a whole, and the detail of a failure."""
    if answer.hung is not None:
        return "hung", f"{_call_text(answer.hung, targets)} does not return, not even on SIGKILL"
    stalled = next((entry.call for entry in answer.stalled if entry.scope == SYSTEM), "")
    if stalled:
        return "hung", f"{stalled} gave no answer"
    if answer.interrupted is not None:
        return "hung", f"there was no time for the calls after {_call_text(answer.interrupted, targets)}"
    if answer.failed:
        return "failed", answer.failed
    for call in ("nvmlInit", DEVICE_COUNT):
        if error := error_name(system.get(call)):
            return "failed", nvml_reason(error) if call == "nvmlInit" else f"{call}: {nvml_reason(error)}"
    return "read", ""


_SYSTEM = {"nvml.driver_version": "nvmlSystemGetDriverVersion", "nvml.version": "nvmlSystemGetNVMLVersion"}


def _call_text(entry: CallResult, targets: dict[int, str]) -> str:
    """Return a call with the label of its GPU, for a message."""
    if entry.scope == SYSTEM:
        return entry.call
    return f"{entry.call} of {target_label(targets.get(entry.scope, unnamed_gpu_target(entry.scope)))}"
