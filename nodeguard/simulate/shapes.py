"""Shapes of faults: what of a node's readings each of them changes, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from nodeguard.model.signal import Scalar
from nodeguard.model.slot import nvlink
from nodeguard.simulate.machine import GPUS, PORTS, Change, Half

# Seconds that a machine is away while it starts anew; what is repaired is repaired before.
REBOOT = 300.0

# A node that works, and whose agent cannot be heard.
UNHEARD = "unheard"

_UNKNOWN = "pid='<unknown>', name=<unknown>"
_APP = "pid=41000, name=python3"


class Shape(Struct, frozen=True):
    """A kind of fault of one node.

    half: where it shows; empty where the node falls silent instead. script: what it changes, on the slot of a
    number, where it lasts for so many seconds. real: whether something is broken; else a decoy, which asks
    for nothing. kills: the chance that a gang with this node dies of it.
    """

    name: str
    half: Half | None
    script: Callable[[int, float], tuple[Change, ...]]
    real: bool = True
    kills: float = 1.0


def _logged(code: int, rest: str, **signals: Scalar) -> Callable[[int, float], tuple[Change, ...]]:
    """An Xid, with readings that go with it, until the node starts anew."""

    def script(number: int, lasts: float) -> tuple[Change, ...]:
        slot = GPUS[number % len(GPUS)]
        fields: Mapping[str, Scalar] = {"pci": slot[4:], "xid": code, "rest": rest}
        return (Change(0.0, slot, signals, lines=(("gpu.xid.line", fields),)), Change(lasts, reboot=True))

    return script


def _application(number: int, _: float) -> tuple[Change, ...]:
    slot = GPUS[number % len(GPUS)]
    fields: Mapping[str, Scalar] = {"pci": slot[4:], "xid": 31, "rest": f"{_APP}, Ch 00000008, MMU Fault"}
    return (Change(0.0, slot, lines=(("gpu.xid.line", fields),)),)


def _remap_failed(number: int, lasts: float) -> tuple[Change, ...]:
    failed = {"gpu.row_remap.failed": True, "gpu.row_remap.uncorrected": 9}
    return (Change(0.0, GPUS[number % len(GPUS)], failed), Change(lasts, reboot=True))


def _link_down(number: int, lasts: float) -> tuple[Change, ...]:
    slot = GPUS[number % len(GPUS)]
    return (
        Change(0.0, nvlink(slot, 0), {"nvlink.active": False}),
        Change(0.0, slot, {"gpu.nvlink.active": 1}),
        Change(lasts, nvlink(slot, 0), {"nvlink.active": True}),
        Change(lasts, slot, {"gpu.nvlink.active": 2}),
    )


_DOWN: Mapping[str, Scalar] = {"port.state": "DOWN", "port.phys_state": "Polling", "port.up": False}
_UP: Mapping[str, Scalar] = {"port.state": "ACTIVE", "port.phys_state": "LinkUp", "port.up": True}


def _port_down(number: int, lasts: float) -> tuple[Change, ...]:
    slot = PORTS[number % len(PORTS)]
    return Change(0.0, slot, _DOWN), Change(lasts, slot, _UP, {"port.link_downed": 1})


def _port_flap(number: int, _: float) -> tuple[Change, ...]:
    """Shorter than the time between two readings: the counter alone tells of it."""
    return (Change(0.0, PORTS[number % len(PORTS)], more={"port.link_downed": 1}),)


def _adapter_dead(number: int, lasts: float) -> tuple[Change, ...]:
    slot = PORTS[number % len(PORTS)]
    return Change(0.0, slot, lines=(("nic.firmware_dead", {}),)), Change(lasts, reboot=True)


def _hot(signal: str, distance: float, slots: int) -> Callable[[int, float], tuple[Change, ...]]:
    """Clocks lowered for heat, on so many GPUs."""

    def script(number: int, lasts: float) -> tuple[Change, ...]:
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
        began = tuple(Change(0.0, slot, hot) for slot in some)
        return (*began, *(Change(lasts, slot, cool) for slot in some))

    return script


def _nothing(_: int, __: float) -> tuple[Change, ...]:
    return ()


_CONTAINED = f"{_APP}, Contained: SM (0x1,0x0). RST: No, D-RST: No"
_UNCONTAINED = f"{_APP}, Uncontained: LTC (0x2,0x0). RST: Yes, D-RST: No"
_GSP = f"{_UNKNOWN}, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
_FELL = f"{_UNKNOWN}, GPU has fallen off the bus."

SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("gpu-lost", "gpu", _logged(79, _FELL, **{"gpu.recovery_action": 2})),
        Shape("gsp-timeout", "gpu", _logged(119, _GSP, **{"gpu.recovery_action": 1})),
        Shape("ecc-uncontained", "gpu", _logged(95, _UNCONTAINED, **{"gpu.recovery_action": 1})),
        Shape("row-remap-failed", "gpu", _remap_failed),
        Shape("nvlink-down", "gpu", _link_down),
        Shape("port-down", "port", _port_down),
        Shape("port-flap", "port", _port_flap, real=False, kills=0.3),
        Shape("adapter-dead", "port", _adapter_dead),
        Shape("throttled", "gpu", _hot("gpu.clocks.hw_thermal", -3.0, 1), kills=0.0),
        Shape("overheated", "gpu", _hot("gpu.clocks.hw_thermal", -3.0, len(GPUS)), kills=0.0),
        Shape("silent", None, _nothing),
        Shape(UNHEARD, None, _nothing, kills=0.0),
        Shape("application", "gpu", _application, real=False, kills=0.0),
        Shape(
            "ecc-contained",
            "gpu",
            _logged(94, _CONTAINED, **{"gpu.ecc.uncorrected": 1}),
            real=False,
            kills=0.0,
        ),
        Shape("warm", "gpu", _hot("gpu.clocks.sw_thermal", 6.0, 1), real=False, kills=0.0),
    )
}
