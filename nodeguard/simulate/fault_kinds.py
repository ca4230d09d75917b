"""Kinds of node faults: the readings that each of them changes, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from nodeguard.model.signal import Scalar
from nodeguard.model.target import nvlink_target
from nodeguard.simulate.simulated_machine import GPUS, PORTS, MachineChange, Subsystem

# Seconds of a reboot. A repair ends before it.
REBOOT_SECONDS = 300.0

# The node works, but the aggregator cannot reach its agent.
UNREACHABLE = "agent-unreachable"

# The node is down.
NODE_DOWN = "node-down"

_UNKNOWN = "pid='<unknown>', name=<unknown>"
_APP = "pid=41000, name=python3"


class FaultKind(Struct, frozen=True):
    """A kind of fault of one node.

    subsystem: the subsystem with readings that show it; None if the agent stops reporting instead. changes:
    returns the changes of the readings for the index of a target and a duration in seconds. is_fault: False
    for a decoy, which needs no action.
    """

    name: str
    subsystem: Subsystem | None
    changes: Callable[[int, float], tuple[MachineChange, ...]]
    is_fault: bool = True


def _logged(code: int, rest: str, **signals: Scalar) -> Callable[[int, float], tuple[MachineChange, ...]]:
    """Return the changes of an Xid and its readings, until the node reboots."""

    def changes(index: int, duration: float) -> tuple[MachineChange, ...]:
        target = GPUS[index % len(GPUS)]
        fields: Mapping[str, Scalar] = {"pci": target[4:], "xid": code, "rest": rest}
        return (
            MachineChange(0.0, target, signals, log_events=(("gpu.xid.line", fields),)),
            MachineChange(duration, reboot=True),
        )

    return changes


def _application(index: int, _: float) -> tuple[MachineChange, ...]:
    target = GPUS[index % len(GPUS)]
    fields: Mapping[str, Scalar] = {"pci": target[4:], "xid": 31, "rest": f"{_APP}, Ch 00000008, MMU Fault"}
    return (MachineChange(0.0, target, log_events=(("gpu.xid.line", fields),)),)


def _remap_failed(index: int, duration: float) -> tuple[MachineChange, ...]:
    failed = {"gpu.row_remap.failed": True, "gpu.row_remap.uncorrected": 9}
    return (MachineChange(0.0, GPUS[index % len(GPUS)], failed), MachineChange(duration, reboot=True))


def _link_down(index: int, duration: float) -> tuple[MachineChange, ...]:
    target = GPUS[index % len(GPUS)]
    return (
        MachineChange(0.0, nvlink_target(target, 0), {"nvlink.active": False}),
        MachineChange(0.0, target, {"gpu.nvlink.active": 1}),
        MachineChange(duration, nvlink_target(target, 0), {"nvlink.active": True}),
        MachineChange(duration, target, {"gpu.nvlink.active": 2}),
    )


_DOWN: Mapping[str, Scalar] = {"port.state": "DOWN", "port.phys_state": "Polling", "port.up": False}
_UP: Mapping[str, Scalar] = {"port.state": "ACTIVE", "port.phys_state": "LinkUp", "port.up": True}


def _port_down(index: int, duration: float) -> tuple[MachineChange, ...]:
    target = PORTS[index % len(PORTS)]
    return MachineChange(0.0, target, _DOWN), MachineChange(duration, target, _UP, {"port.link_downed": 1})


def _port_flap(index: int, _: float) -> tuple[MachineChange, ...]:
    """Return the changes of a link loss that is too short for a reading: only the counter shows it."""
    return (MachineChange(0.0, PORTS[index % len(PORTS)], increments={"port.link_downed": 1}),)


def _adapter_dead(index: int, duration: float) -> tuple[MachineChange, ...]:
    target = PORTS[index % len(PORTS)]
    return MachineChange(0.0, target, log_events=(("nic.firmware_dead", {}),)), MachineChange(
        duration, reboot=True
    )


def _hot(signal: str, distance: float, gpus: int) -> Callable[[int, float], tuple[MachineChange, ...]]:
    """Return the changes of thermal throttling on some GPUs."""

    def changes(index: int, duration: float) -> tuple[MachineChange, ...]:
        targets = [GPUS[(index + offset) % len(GPUS)] for offset in range(gpus)]
        hot: Mapping[str, Scalar] = {
            signal: True,
            "gpu.temperature": 84.0,
            "gpu.temperature.limit_distance": distance,
        }
        cool: Mapping[str, Scalar] = {
            signal: False,
            "gpu.temperature": 61.0,
            "gpu.temperature.limit_distance": 25.0,
        }
        started = tuple(MachineChange(0.0, target, hot) for target in targets)
        return (*started, *(MachineChange(duration, target, cool) for target in targets))

    return changes


def _nothing(_: int, __: float) -> tuple[MachineChange, ...]:
    return ()


_CONTAINED = f"{_APP}, Contained: SM (0x1,0x0). RST: No, D-RST: No"
_UNCONTAINED = f"{_APP}, Uncontained: LTC (0x2,0x0). RST: Yes, D-RST: No"
_GSP = f"{_UNKNOWN}, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
_FELL = f"{_UNKNOWN}, GPU has fallen off the bus."

FAULT_KINDS: Mapping[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind("gpu-lost", "gpu", _logged(79, _FELL, **{"gpu.recovery_action": 2})),
        FaultKind("gsp-timeout", "gpu", _logged(119, _GSP, **{"gpu.recovery_action": 1})),
        FaultKind("ecc-uncontained", "gpu", _logged(95, _UNCONTAINED, **{"gpu.recovery_action": 1})),
        FaultKind("row-remap-failed", "gpu", _remap_failed),
        FaultKind("nvlink-down", "gpu", _link_down),
        FaultKind("port-down", "port", _port_down),
        FaultKind("port-flap", "port", _port_flap, is_fault=False),
        FaultKind("adapter-dead", "port", _adapter_dead),
        FaultKind("throttled", "gpu", _hot("gpu.clocks.hw_thermal", -3.0, 1)),
        FaultKind("overheated", "gpu", _hot("gpu.clocks.hw_thermal", -3.0, len(GPUS))),
        FaultKind(NODE_DOWN, None, _nothing),
        FaultKind(UNREACHABLE, None, _nothing),
        FaultKind("application", "gpu", _application, is_fault=False),
        FaultKind(
            "ecc-contained", "gpu", _logged(94, _CONTAINED, **{"gpu.ecc.uncorrected": 1}), is_fault=False
        ),
        FaultKind("warm", "gpu", _hot("gpu.clocks.sw_thermal", 6.0, 1), is_fault=False),
    )
}
