"""Shapes of faults: what of a node's readings each of them changes, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from nodeguard.model.signal import Scalar
from nodeguard.model.target import nvlink_target
from nodeguard.simulate.simulated_machine import GPUS, PORTS, MachineChange, Subsystem

# Seconds that a machine is away while it starts anew; what is repaired is repaired before.
REBOOT_SECONDS = 300.0

# A node that works, and whose agent cannot be heard.
UNREACHABLE = "unheard"

_UNKNOWN = "pid='<unknown>', name=<unknown>"
_APP = "pid=41000, name=python3"


class FaultKind(Struct, frozen=True):
    """A kind of fault of one node.

    half: where it shows; empty where the node falls silent instead. script: what it changes, on the slot of a
    number, where it lasts for so many seconds. real: whether something is broken; else a decoy, which asks
    for nothing. kills: the chance that a gang with this node dies of it.
    """

    name: str
    subsystem: Subsystem | None
    changes: Callable[[int, float], tuple[MachineChange, ...]]
    is_fault: bool = True
    kills: float = 1.0


def _logged(code: int, rest: str, **signals: Scalar) -> Callable[[int, float], tuple[MachineChange, ...]]:
    """An Xid, with readings that go with it, until the node starts anew."""

    def script(number: int, lasts: float) -> tuple[MachineChange, ...]:
        slot = GPUS[number % len(GPUS)]
        fields: Mapping[str, Scalar] = {"pci": slot[4:], "xid": code, "rest": rest}
        return (
            MachineChange(0.0, slot, signals, log_events=(("gpu.xid.line", fields),)),
            MachineChange(lasts, reboot=True),
        )

    return script


def _application(number: int, _: float) -> tuple[MachineChange, ...]:
    slot = GPUS[number % len(GPUS)]
    fields: Mapping[str, Scalar] = {"pci": slot[4:], "xid": 31, "rest": f"{_APP}, Ch 00000008, MMU Fault"}
    return (MachineChange(0.0, slot, log_events=(("gpu.xid.line", fields),)),)


def _remap_failed(number: int, lasts: float) -> tuple[MachineChange, ...]:
    failed = {"gpu.row_remap.failed": True, "gpu.row_remap.uncorrected": 9}
    return (MachineChange(0.0, GPUS[number % len(GPUS)], failed), MachineChange(lasts, reboot=True))


def _link_down(number: int, lasts: float) -> tuple[MachineChange, ...]:
    slot = GPUS[number % len(GPUS)]
    return (
        MachineChange(0.0, nvlink_target(slot, 0), {"nvlink.active": False}),
        MachineChange(0.0, slot, {"gpu.nvlink.active": 1}),
        MachineChange(lasts, nvlink_target(slot, 0), {"nvlink.active": True}),
        MachineChange(lasts, slot, {"gpu.nvlink.active": 2}),
    )


_DOWN: Mapping[str, Scalar] = {"port.state": "DOWN", "port.phys_state": "Polling", "port.up": False}
_UP: Mapping[str, Scalar] = {"port.state": "ACTIVE", "port.phys_state": "LinkUp", "port.up": True}


def _port_down(number: int, lasts: float) -> tuple[MachineChange, ...]:
    slot = PORTS[number % len(PORTS)]
    return MachineChange(0.0, slot, _DOWN), MachineChange(lasts, slot, _UP, {"port.link_downed": 1})


def _port_flap(number: int, _: float) -> tuple[MachineChange, ...]:
    """Shorter than the time between two readings: the counter alone tells of it."""
    return (MachineChange(0.0, PORTS[number % len(PORTS)], increments={"port.link_downed": 1}),)


def _adapter_dead(number: int, lasts: float) -> tuple[MachineChange, ...]:
    slot = PORTS[number % len(PORTS)]
    return MachineChange(0.0, slot, log_events=(("nic.firmware_dead", {}),)), MachineChange(
        lasts, reboot=True
    )


def _hot(signal: str, distance: float, slots: int) -> Callable[[int, float], tuple[MachineChange, ...]]:
    """Clocks lowered for heat, on so many GPUs."""

    def script(number: int, lasts: float) -> tuple[MachineChange, ...]:
        some = [GPUS[(number + more) % len(GPUS)] for more in range(slots)]
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
        began = tuple(MachineChange(0.0, slot, hot) for slot in some)
        return (*began, *(MachineChange(lasts, slot, cool) for slot in some))

    return script


def _nothing(_: int, __: float) -> tuple[MachineChange, ...]:
    return ()


_CONTAINED = f"{_APP}, Contained: SM (0x1,0x0). RST: No, D-RST: No"
_UNCONTAINED = f"{_APP}, Uncontained: LTC (0x2,0x0). RST: Yes, D-RST: No"
_GSP = f"{_UNKNOWN}, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
_FELL = f"{_UNKNOWN}, GPU has fallen off the bus."

FAULT_KINDS: Mapping[str, FaultKind] = {
    shape.name: shape
    for shape in (
        FaultKind("gpu-lost", "gpu", _logged(79, _FELL, **{"gpu.recovery_action": 2})),
        FaultKind("gsp-timeout", "gpu", _logged(119, _GSP, **{"gpu.recovery_action": 1})),
        FaultKind("ecc-uncontained", "gpu", _logged(95, _UNCONTAINED, **{"gpu.recovery_action": 1})),
        FaultKind("row-remap-failed", "gpu", _remap_failed),
        FaultKind("nvlink-down", "gpu", _link_down),
        FaultKind("port-down", "port", _port_down),
        FaultKind("port-flap", "port", _port_flap, is_fault=False, kills=0.3),
        FaultKind("adapter-dead", "port", _adapter_dead),
        FaultKind("throttled", "gpu", _hot("gpu.clocks.hw_thermal", -3.0, 1), kills=0.0),
        FaultKind("overheated", "gpu", _hot("gpu.clocks.hw_thermal", -3.0, len(GPUS)), kills=0.0),
        FaultKind("silent", None, _nothing),
        FaultKind(UNREACHABLE, None, _nothing, kills=0.0),
        FaultKind("application", "gpu", _application, is_fault=False, kills=0.0),
        FaultKind(
            "ecc-contained",
            "gpu",
            _logged(94, _CONTAINED, **{"gpu.ecc.uncorrected": 1}),
            is_fault=False,
            kills=0.0,
        ),
        FaultKind("warm", "gpu", _hot("gpu.clocks.sw_thermal", 6.0, 1), is_fault=False, kills=0.0),
    )
}
