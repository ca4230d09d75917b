"""A node as its sources read it: healthy, and as faults change it. Pure.

It has what shared faults and the usual ones of a node show in, and no more: GPUs with NVLinks, and ports.
Each is a set of slots of its own, judged apart, as their findings do not explain each other.
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

# As many as it takes to be one another's peers.
GPUS = tuple(f"gpu/0000:{bus:02x}:00" for bus in (0x1B, 0x43, 0x9D, 0xC3))
PORTS = tuple(f"port/mlx5_{number}/1" for number in range(4))

# Of each GPU: enough for one to be down while others are not.
_LINKS = 2

# Seconds for which a reading counts, as a source says of itself that is read every ten seconds.
_VALID = 35.0

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
    """What becomes different on a slot, so many seconds after a fault began.

    signals: their new values. more: by how much counters rise. lines: signals and fields of events of the
    kernel log. reboot: the node starts anew, and nothing is different any more.
    """

    after: float
    target: str = NODE
    signals: Mapping[str, Scalar] = {}
    increments: Mapping[str, int] = {}
    log_events: tuple[tuple[str, Mapping[str, Scalar]], ...] = ()
    reboot: bool = False


class SimulatedMachine:
    """One half of a node while time goes on. boots: how often it has started anew."""

    def __init__(self, half: Subsystem) -> None:
        self._half: Subsystem = half
        self._signals = _healthy(half)
        self._counts = {slot: dict(signals) for slot, signals in self._signals.items()}
        self._events: dict[str, list[Event]] = {}
        self.boots = 0

    def apply(self, one: MachineChange, mono: float) -> None:
        """Something is different from now on. mono: seconds since boot."""
        if one.reboot:
            self._signals, self._events = _healthy(self._half), {}
            self.boots += 1
            return
        row = self._signals[one.target]
        risen = {name: int(row[name]) + by for name, by in one.increments.items()}
        self._signals[one.target] = {**row, **one.signals, **risen}
        for signal, fields in one.log_events:
            self._events.setdefault(one.target, []).append(Event(signal, mono, "", dict(fields)))

    def read(self, mono: float) -> list[Reading]:
        """What its sources read now; an event is told once."""
        source = "nvml" if self._half == "gpu" else "infiniband"
        rows = tuple(
            Observation(
                source,
                slot,
                signals=signals,
                component=None if slot == NODE else Component(f"part of {slot}"),
            )
            for slot, signals in self._signals.items()
        )
        log = [
            Observation("kmsg", slot, events=tuple(events)) for slot, events in sorted(self._events.items())
        ]
        self._events = {}
        quiet = Observation("kmsg", NODE, signals={"kmsg.sequence": 1})
        return [
            Reading(source, mono, rows, valid_for=_VALID),
            Reading("kmsg", mono, (*_without_node(log), quiet), valid_for=_VALID),
        ]


def _without_node(log: Iterable[Observation]) -> Iterable[Observation]:
    return (one for one in log if one.target != NODE)


def _healthy(half: Subsystem) -> dict[str, dict[str, Scalar]]:
    if half == "port":
        return {NODE: {"rdma.port_count": len(PORTS)}, **dict.fromkeys(PORTS, _PORT)}
    links = {nvlink_target(slot, link): _LINK for slot in GPUS for link in range(_LINKS)}
    return {NODE: _NODE, **dict.fromkeys(GPUS, _GPU), **links}
