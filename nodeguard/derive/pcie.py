"""Derived signals of PCIe links: the lanes of a slot, and those of other devices of the same make. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nodeguard.derive.derivation import Derivation, Once, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.network_ports import is_network_port
from nodeguard.model.signal import Scalar

_WIDTH = "pci.link.width"
# NVML also reports the width where a hypervisor hides the link from the bus.
_NVML_WIDTH = "gpu.pcie.width"
_KINDS = ("gpu", "port", "pci")

# Devices of one make on a node from which on the width of most of them is a reference.
_MIN_ALIKE = 4

# Vendor and device id.
_Make = tuple[Scalar | None, Scalar | None]
# Lanes in use, by make and target.
_Widths = dict[_Make, dict[str, int]]


def _slot(latest: LatestReadings, target: str) -> Values:
    """`pci.link.width_slot`: the lanes that both the device and the port above it are capable of.
    `pci.link.slot`: lanes of that port as text, or `unknown`.

    Boards give many cards fewer lanes than the card has: eight is usual for L4, T4 and A10. A slot of unknown
    width, such as one of a virtual machine without a bridge, may have only the lanes in use.
    """
    own = latest.get(target, "pci.link.width_max")
    above = latest.get(target, "pci.upstream.width_max")
    if isinstance(own, int) and isinstance(above, int):
        yield "pci.link.width_slot", min(own, above)
        yield "pci.link.slot", str(above)
    elif _lanes(latest, target) is not None:
        yield "pci.link.slot", "unknown"


def _widest_alike(widths: Once[_Widths]) -> Callable[[LatestReadings, str], Values]:
    """`pci.link.width_alike`: the most lanes that another device of the same make runs on, on this node.

    A port's maximum does not show how many lanes the board wires. A wider card of this make on the same board
    shows that a slot of it can have more.
    """

    def compute(latest: LatestReadings, target: str) -> Values:
        if latest.get(target, _WIDTH) is not None:
            others = [width for other, width in _alike(widths, latest, target).items() if other != target]
            if others:
                yield "pci.link.width_alike", max(others)

    return compute


def _usual_width(widths: Once[_Widths]) -> Callable[[LatestReadings, str], Values]:
    """`pci.link.width_usual`: the lanes that most of the devices of this make on this node run on.

    A function that manages NVSwitches has fewer than the network adapters of its make. Raises UnreadError.
    """

    def compute(latest: LatestReadings, target: str) -> Values:
        alike = _alike(widths, latest, target)
        if target.startswith("port/") and not is_network_port(latest, target):
            return
        if target in alike and len(alike) >= _MIN_ALIKE:
            [(width, number)] = Counter(alike.values()).most_common(1)
            if number * 2 > len(alike):
                yield "pci.link.width_usual", width

    return compute


def _alike(widths: Once[_Widths], latest: LatestReadings, target: str) -> dict[str, int]:
    make = latest.get(target, "pci.vendor"), latest.get(target, "pci.device")
    return widths(latest).get(make, {})


def _lanes(latest: LatestReadings, target: str) -> int | None:
    """Return the lanes in use, as far as they were read."""
    signals = latest.read_signals(target)
    width = signals.get(_WIDTH, signals.get(_NVML_WIDTH))
    return width if isinstance(width, int) else None


def _widths(latest: LatestReadings) -> _Widths:
    widths: _Widths = {}
    for kind in _KINDS:
        for target in latest.targets(kind):
            width, signals = _lanes(latest, target), latest.read_signals(target)
            if width is not None:
                make = signals.get("pci.vendor"), signals.get("pci.device")
                widths.setdefault(make, {})[target] = width
    return widths


def pcie_derivations() -> tuple[Derivation, ...]:
    """Return the derivations for PCIe links."""
    widths = Once(_widths)
    return tuple(
        Derivation(kind, signals, compute)
        for kind in _KINDS
        for signals, compute in (
            (("pci.link.width_slot", "pci.link.slot"), _slot),
            (("pci.link.width_alike",), _widest_alike(widths)),
            (("pci.link.width_usual",), _usual_width(widths)),
        )
    )
