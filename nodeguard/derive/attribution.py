"""Whose a PCI function is.

What the kernel says of an address belongs to the GPU, switch or port that sits there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.model.observation import Reading
from nodeguard.model.slot import kind, pci


def owners(latest: Iterable[Reading]) -> dict[str, str]:
    """Slot by PCI slot, for functions that are known by another name.

    A GPU's or NVSwitch's own address, the address of a device with exactly one RDMA port, and that of the
    bridge right above one of these: what is said of the bridge's link is said of the one device below it.
    """
    found: dict[str, str] = {}
    ports: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for reading in latest:
        for observation in reading.observations:
            signals = observation.signals
            if "port.pci" in signals:
                ports.setdefault(pci(str(signals["port.pci"])), []).append(observation.slot)
            if "pci.upstream" in signals:
                below.setdefault(pci(str(signals["pci.upstream"])), []).append(observation.slot)
            if kind(observation.slot) in {"gpu", "nvswitch"}:
                found[pci(observation.slot.split("/")[1])] = observation.slot
    found.update({address: slots[0] for address, slots in ports.items() if len(slots) == 1})
    for bridge, slots in below.items():
        if len(slots) == 1 and bridge not in found:
            found[bridge] = found.get(slots[0], slots[0])
    return found


def attributed(reading: Reading, owners: Mapping[str, str]) -> Reading:
    """A reading with what it says of a PCI function said of its owner."""
    if not any(observation.slot in owners for observation in reading.observations):
        return reading
    moved = (
        replace(one, slot=owners[one.slot]) if one.slot in owners else one for one in reading.observations
    )
    return replace(reading, observations=tuple(moved))
