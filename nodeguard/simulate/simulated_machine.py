"""Readings of a simulated node: healthy, and as faults change them. Pure.

It has only the targets in which simulated faults show: GPUs with NVLinks, and ports. Both are evaluated
separately, as their findings do not explain each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, nvlink_target

Subsystem = Literal["gpu", "port"]
SUBSYSTEMS: tuple[Subsystem, ...] = ("gpu", "port")

# Enough to have peers.
GPUS = tuple(f"gpu/0000:{bus:02x}:00" for bus in (0x1B, 0x43, 0x9D, 0xC3))
PORTS = tuple(f"port/mlx5_{number}/1" for number in range(4))

# Links of each GPU: enough for one to be down while another is up.
_LINKS = 2

# Seconds for which a reading is valid, as of a source that is read every ten seconds.
_VALID_SECONDS = 35.0

_NODE: dict[str, Scalar] = {
    "nvml.library": True,
    "nvml.hung": False,
    "nvml.answers": True,
    "nvml.ready": True,
    "nvml.error": "none",
    "nvml.driver_version": "580.95.05",
    "gpu.handles_hidden": 0,
    "gpu.handle_error": "none",
    "gpu.handles_refused": 0,
}
_GPU: dict[str, Scalar] = {
    "gpu.name": "NVIDIA H100 80GB HBM3",
    "gpu.recovery_action": 0,
    "gpu.ecc.enabled": True,
    "gpu.ecc.corrected": 0,
    "gpu.ecc.uncorrected": 0,
    "gpu.row_remap.corrected": 0,
    "gpu.row_remap.uncorrected": 0,
    "gpu.row_remap.pending": False,
    "gpu.row_remap.failed": False,
    "gpu.clocks.hw_slowdown": False,
    "gpu.clocks.sw_thermal": False,
    "gpu.clocks.hw_thermal": False,
    "gpu.clocks.power_brake": False,
    "gpu.clocks.sw_thermal_time": 0.0,
    "gpu.clocks.hw_thermal_time": 0.0,
    "gpu.clocks.power_brake_time": 0.0,
    "gpu.temperature": 61.0,
    "gpu.temperature.limit_distance": 25.0,
    "gpu.temperature.slowdown_distance": -2.0,
    "gpu.nvlink.count": _LINKS,
    "gpu.nvlink.active": _LINKS,
    "gpu.error": "none",
    "gpu.answers": True,
}
_LINK: dict[str, Scalar] = {"nvlink.active": True, "nvlink.replays": 0, "nvlink.crc_errors": 0}
_PORT: dict[str, Scalar] = {
    "port.device_type": "MT4129",
    "port.board": "MT_0000000838",
    "port.link_layer": "InfiniBand",
    "port.state": "ACTIVE",
    "port.phys_state": "LinkUp",
    "port.up": True,
    "port.rate": 400.0,
    "port.link_downed": 0,
    "port.symbol_error": 0,
    "port.port_rcv_errors": 0,
}


class MachineChange(Struct, frozen=True):
    """A change of a target's readings. after: seconds since the fault began.

    signals: their new values. increments: of counters. log_events: signals and fields of events in the kernel
    log. reboot: the node reboots and is healthy again.
    """

    after: float
    target: str = NODE
    signals: Mapping[str, Scalar] = {}
    increments: Mapping[str, int] = {}
    log_events: tuple[tuple[str, Mapping[str, Scalar]], ...] = ()
    reboot: bool = False


class SimulatedMachine:
    """One subsystem of a node over time. boots: number of its reboots."""

    def __init__(self, subsystem: Subsystem) -> None:
        self._subsystem: Subsystem = subsystem
        self._signals = _healthy(subsystem)
        self._events: dict[str, list[Event]] = {}
        self.boots = 0

    def apply(self, change: MachineChange, mono: float) -> None:
        """Apply a change. mono: seconds since boot."""
        if change.reboot:
            self._signals, self._events = _healthy(self._subsystem), {}
            self.boots += 1
            return
        signals = self._signals[change.target]
        counters = {name: int(signals[name]) + increment for name, increment in change.increments.items()}
        self._signals[change.target] = {**signals, **change.signals, **counters}
        for signal, fields in change.log_events:
            self._events.setdefault(change.target, []).append(Event(signal, mono, "", dict(fields)))

    def read(self, mono: float) -> list[Reading]:
        """Return the readings of its sources. An event is returned once."""
        source = "nvml" if self._subsystem == "gpu" else "infiniband"
        rows = tuple(
            Observation(source, target, signals=signals, component=_component(target))
            for target, signals in self._signals.items()
        )
        log = [
            Observation("kmsg", target, events=tuple(events))
            for target, events in sorted(self._events.items())
        ]
        self._events = {}
        sequence = Observation("kmsg", NODE, signals={"kmsg.sequence": 1})
        return [
            Reading(source, mono, rows, valid_for=_VALID_SECONDS),
            Reading("kmsg", mono, (*_without_node(log), sequence), valid_for=_VALID_SECONDS),
        ]


def _component(target: str) -> Component | None:
    return None if target == NODE else Component(f"component of {target}")


def _without_node(log: Iterable[Observation]) -> Iterable[Observation]:
    return (observation for observation in log if observation.target != NODE)


def _healthy(subsystem: Subsystem) -> dict[str, dict[str, Scalar]]:
    if subsystem == "port":
        return dict.fromkeys(PORTS, _PORT)
    links = {nvlink_target(gpu, link): _LINK for gpu in GPUS for link in range(_LINKS)}
    return {NODE: _NODE, **dict.fromkeys(GPUS, _GPU), **links}
