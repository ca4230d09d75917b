"""Whose a thing is that the kernel names in its own way.

What it says of a PCI function belongs to the GPU, switch or port that sits there; what it says of a block
device, to the file system or the disk; what it says of a DIMM's label, to the DIMM. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.derive.storage import disk
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.slot import filesystem, kind, pci

_Claims = dict[str, list[str]]


def owners(latest: Iterable[Reading]) -> dict[str, str]:
    """Slot by the slot that the kernel's own name for it gives.

    A GPU's or NVSwitch's own address, the address of a device with exactly one RDMA port, and that of the
    bridge right above one of these: what is said of the bridge's link is said of the one device below it. The
    device that a file system is mounted from, and the label of a DIMM, where only one bears it.
    """
    found: dict[str, str] = {}
    named: _Claims = {}
    below: _Claims = {}
    for reading in latest:
        for observation in reading.observations:
            slot, signals = observation.slot, observation.signals
            if "pci.upstream" in signals:
                below.setdefault(pci(str(signals["pci.upstream"])), []).append(slot)
            if kind(slot) in {"gpu", "nvswitch"}:
                found[pci(slot.split("/")[1])] = slot
            name = _name(observation)
            if name:
                named.setdefault(name, []).append(slot)
    found.update({name: slots[0] for name, slots in named.items() if len(slots) == 1})
    for bridge, slots in below.items():
        if len(slots) == 1 and bridge not in found:
            found[bridge] = found.get(slots[0], slots[0])
    return found


def _name(observation: Observation) -> str:
    """The kernel's own name for a port's device, a file system's or a DIMM, as a slot; empty for others."""
    signals = observation.signals
    if "port.pci" in signals:
        return pci(str(signals["port.pci"]))
    if "fs.device" in signals:
        return filesystem(str(signals["fs.device"]).removeprefix("/dev/"))
    if kind(observation.slot) == "dimm" and observation.part is not None:
        return f"dimm/{observation.part.id}"
    return ""


def attributed(reading: Reading, owners: Mapping[str, str]) -> Reading:
    """A reading with what it says of a thing by another name said of its owner."""
    if not any(one.events or one.slot in owners for one in reading.observations):
        return reading
    moved = tuple(part for one in reading.observations for part in _owned(one, owners))
    return replace(reading, observations=moved)


def _owned(observation: Observation, owners: Mapping[str, str]) -> Iterator[Observation]:
    """An observation at its owner's slot, in parts where its events have several owners."""
    slot = observation.slot
    by_place: dict[str, tuple[Event, ...]] = {}
    for event in observation.events:
        place = _place(slot, event, owners)
        by_place[place] = (*by_place.get(place, ()), event)
    if not by_place:
        by_place[owners.get(slot, slot)] = ()
    for place, events in by_place.items():
        same = place == slot and len(by_place) == 1
        yield observation if same else replace(observation, slot=place, events=events)


def _place(slot: str, event: Event, owners: Mapping[str, str]) -> str:
    if "label" in event.fields:
        return owners.get(f"dimm/{event.fields['label']}", slot)
    if kind(slot) != "disk":
        return owners.get(slot, slot)
    device = slot.removeprefix("disk/")
    return owners.get(filesystem(device), slot) if event.signal.startswith("fs.") else disk(device)
