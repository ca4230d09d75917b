"""Ends of faults that leave no line in the log when they are over, proved by later readings. Pure.

The driver logs that a GPU did not start, and logs nothing when a later attempt works. A reading of NVML
without an error proves the end. It counts SOAK seconds after the latest line of the fault: a fault that lasts
is logged again in that time.

The faults are those that the judge remembers, and not a state of this module: so a fault that an earlier
version of nodeguard recorded ends in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import NamedTuple

from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.observation import Event, Reading
from nodeguard.model.target import NODE, is_passthrough_driver

# Seconds between the latest line of a fault and a reading that proves its end: 30 rounds of NVML. Where a GPU
# does not start, the driver tries again, and logs it, each time that a process opens the GPU.
SOAK = 300.0

# Latest fault by target, in seconds since boot; by the event that ends it.
PendingFaults = Mapping[str, Mapping[str, float]]

# Target, signal and time of an event, in seconds since boot.
LoggedEvent = tuple[str, str, float]


class FaultEnd(NamedTuple):
    """An event that ends faults. faults: their events. is_over: whether the readings prove the end.

    ended_too: events of faults that end with those of `faults`: readings do not prove their end.
    """

    event: str
    faults: frozenset[str]
    is_over: Callable[[LatestReadings, str], bool]
    ended_too: frozenset[str] = frozenset()


def pending_faults(events: Iterable[LoggedEvent]) -> PendingFaults:
    """Return the faults among some events, in any order, that no later one of these events ended."""
    latest: dict[str, dict[str, float]] = {}
    for target, signal, at in events:
        if signal in _SIGNALS:
            times = latest.setdefault(target, {})
            times[signal] = max(at, times.get(signal, at))
    pending: dict[str, dict[str, float]] = {}
    for target, times in latest.items():
        for end in FAULT_ENDS:
            ended_at = times.get(end.event, -inf)
            open_faults = {signal: at for signal, at in times.items() if at > ended_at}
            if end.faults & open_faults.keys():
                related = (end.faults | end.ended_too) & open_faults.keys()
                pending.setdefault(end.event, {})[target] = max(open_faults[signal] for signal in related)
    return pending


def end_faults(
    events: Iterable[LoggedEvent], latest: LatestReadings, readings: Iterable[Reading]
) -> dict[str, tuple[Event, ...]]:
    """Return by target the events that end the faults among some events.

    latest: with the derived signals. readings: of this round; without one of NVML no fault is over.
    """
    began = max((reading.began for reading in readings if reading.source == "nvml"), default=None)
    if began is None:
        return {}
    ended: dict[str, tuple[Event, ...]] = {}
    pending = pending_faults(events)
    for end in FAULT_ENDS:
        for target, at in pending.get(end.event, {}).items():
            if began - at >= SOAK and _is_proved(end, latest, target):
                ended[target] = (*ended.get(target, ()), Event(end.event, began))
    return ended


def _is_proved(end: FaultEnd, latest: LatestReadings, target: str) -> bool:
    try:
        return end.is_over(latest, target)
    except UnreadError:
        return False


def _is_gpu_started(latest: LatestReadings, target: str) -> bool:
    """Return whether NVML reads a GPU without an error; for the node, every GPU that it has or had."""
    if target != NODE:
        return _is_usable(latest, target)
    on_bus = latest.listed("pci", "gpu")
    if on_bus is None or latest.node_signal("nvml.ready") is not True:
        return False
    own = [gpu for gpu in on_bus | (latest.listed("nvml", "gpu") or frozenset()) if _is_own(latest, gpu)]
    expected = latest.get(NODE, "gpu.count~inventory")
    is_complete = not isinstance(expected, int | float) or len(own) >= expected
    return bool(own) and is_complete and all(_is_usable(latest, gpu) for gpu in own)


def _is_own(latest: LatestReadings, gpu: str) -> bool:
    """Return whether a GPU is for this system, and not for a virtual machine."""
    driver = str(latest.get(gpu, "pci.driver") or "")
    return not is_passthrough_driver(driver) and latest.get(gpu, "pci.virtual") is not True


def _is_usable(latest: LatestReadings, gpu: str) -> bool:
    return latest.get(gpu, "gpu.answers") is True and latest.get(gpu, "gpu.error") == "none"


def _needs_no_reset(latest: LatestReadings, target: str) -> bool:
    """Return whether the driver asks for no recovery of any GPU, and NVML reads all without an error."""
    gpus = latest.listed("nvml", "gpu") or frozenset()
    needs_none = all(latest.get(gpu, "gpu.recovery_action") == 0 for gpu in gpus)
    return needs_none and _is_gpu_started(latest, target)


def _has_all_links(latest: LatestReadings, target: str) -> bool:
    """Return whether each GPU has active NVLinks and none of its links is down that should be active."""
    gpus = latest.listed("nvml", "gpu") or frozenset()
    is_linked = all(latest.get(gpu, "gpu.nvlink.active") for gpu in gpus)
    is_down = any(latest.get(link, "nvlink.down") for link in latest.targets("nvlink"))
    return is_linked and not is_down and _is_gpu_started(latest, target)


def _is_confidential_ready(latest: LatestReadings, _target: str) -> bool:
    return latest.node_signal("nvml.confidential_ready") is True


FAULT_ENDS = (
    FaultEnd("gpu.started", frozenset({"gpu.boot_failed", "gpu.init_failed"}), _is_gpu_started),
    # The recovery action is `reset` while a GPU is marked for one, and calls of NVML fail while the firmware
    # is down. The driver also refuses work after a fault of a BAR, and probes the memory on request: it marks
    # no GPU then. Source: NVIDIA open kernel modules 595, gpu.c, kernel_gsp.c, and kern_gmmu.c with its files
    # by architecture.
    FaultEnd(
        "gpu.reset_done",
        frozenset({"gpu.reset_marked", "gpu.firmware_failed"}),
        _needs_no_reset,
        ended_too=frozenset({"gpu.reset_required", "gpu.memory_path_failed"}),
    ),
    FaultEnd(
        "nvlink.all_active", frozenset({"nvlink.degraded", "nvlink.receiver_undetected"}), _has_all_links
    ),
    FaultEnd("gpu.confidential_ready", frozenset({"gpu.confidential_failed"}), _is_confidential_ready),
)
_SIGNALS = frozenset().union(*({end.event} | end.faults | end.ended_too for end in FAULT_ENDS))
