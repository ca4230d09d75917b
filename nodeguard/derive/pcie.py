"""Possible widths of the PCIe link of a device in its slot. Pure."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.derive.derivation import Derivation, Once, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.signal import Scalar

_WIDTH = "pci.link.width"
_KINDS = ("gpu", "port", "pci")

# Vendor and device id.
_Make = tuple[Scalar | None, Scalar | None]


def _slot_width(latest: LatestReadings, slot: str) -> Values:
    """`pci.link.width_slot`: the lanes that both the device and the port above it are capable of.

    Boards give many cards fewer lanes than the card has: eight is usual for L4, T4 and A10.
    """
    own = latest.get(slot, "pci.link.width_max")
    above = latest.get(slot, "pci.upstream.width_max")
    if isinstance(own, int):
        yield "pci.link.width_slot", min(own, above) if isinstance(above, int) else own


def _widest_alike(widths: Once[dict[_Make, dict[str, int]]]) -> Callable[[LatestReadings, str], Values]:
    """`pci.link.width_alike`: the most lanes that another device of the same make runs on, on this node.

    A port's maximum does not show how many lanes the board wires. A wider card of this make on the same board
    shows that a slot of it can have more.
    """

    def compute(latest: LatestReadings, slot: str) -> Values:
        if latest.get(slot, _WIDTH) is None:
            return
        make = latest.get(slot, "pci.vendor"), latest.get(slot, "pci.device")
        others = [width for other, width in widths(latest).get(make, {}).items() if other != slot]
        if others:
            yield "pci.link.width_alike", max(others)

    return compute


def _widths(latest: LatestReadings) -> dict[_Make, dict[str, int]]:
    """Return the lanes in use, by make and target."""
    widths: dict[_Make, dict[str, int]] = {}
    for kind in _KINDS:
        for slot, width in latest.read_values(kind, _WIDTH):
            signals = latest.read_signals(slot)
            if isinstance(width, int):
                make = signals.get("pci.vendor"), signals.get("pci.device")
                widths.setdefault(make, {})[slot] = width
    return widths


def pcie_derivations() -> tuple[Derivation, ...]:
    """Return the derivations for PCIe links."""
    widest_alike = _widest_alike(Once(_widths))
    return (
        *(Derivation(kind, ("pci.link.width_slot",), _slot_width) for kind in _KINDS),
        *(Derivation(kind, ("pci.link.width_alike",), widest_alike) for kind in _KINDS),
    )
