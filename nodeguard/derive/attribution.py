"""Which slot an observation belongs to that the kernel or NVML names in another way.

What the kernel says of a PCI function belongs to the GPU, switch or port that sits there; what it says of a
block device, to the file system or the disk, or to a volume where the host has nothing mounted from it; what
it says of a DIMM's label, to the DIMM. What NVML says of a GPU whose PCI address it does not give belongs to
the GPU that the bus has and NVML does not name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from nodeguard.derive.storage import disk_of_device
from nodeguard.model.observation import UNREADABLE, Event, Observation, Reading
from nodeguard.model.target import filesystem_target, gpu_index, parent_target, pci_target, target_kind

_Claims = dict[str, list[str]]

# The event that each event of a disk becomes where no file system of the host is mounted from the disk. The
# same lines come from detached cloud volumes, pods' volumes, USB sticks and virtual media.
_VOLUME_EVENTS = {
    "disk.lost": "volume.lost",
    "disk.controller_down": "volume.lost",
    "disk.io_error": "volume.error",
    "disk.no_path": "volume.error",
    "disk.beyond_end": "volume.error",
    "fs.kernel_error": "volume.error",
    "fs.shut_down": "volume.error",
}

# The signals by which a slot claims what the kernel says of its device.
_CLAIMS = frozenset({"pci.upstream", "port.pci", "fs.device"})


def find_owners(latest: Mapping[str, Reading], before: Mapping[str, str]) -> dict[str, str]:
    """Return the slot that owns each other name for it.

    A GPU's or NVSwitch's own address, the address of a device with exactly one RDMA port, and that of the
    bridge right above one of these: what is said of the bridge's link is said of the one device below it.
    The device that a file system is mounted from, and the label of a DIMM, where only one bears it. A GPU
    that NVML knows by its index alone, see unnamed_gpus.

    latest: of each source its latest reading. before: the owners at the last look; they stay where the slot's
    claim could not be read now.
    """
    found: dict[str, str] = {}
    named: _Claims = {}
    below: _Claims = {}
    for reading in latest.values():
        for observation in reading.observations:
            slot, signals = observation.target, observation.signals
            if "pci.upstream" in signals:
                below.setdefault(pci_target(str(signals["pci.upstream"])), []).append(slot)
            if target_kind(slot) in {"gpu", "nvswitch"} and gpu_index(slot) is None:
                found[pci_target(slot.split("/")[1])] = slot
            name = _name(observation)
            if name:
                named.setdefault(name, []).append(slot)
    found.update({name: slots[0] for name, slots in named.items() if len(slots) == 1})
    for bridge, slots in below.items():
        if len(slots) == 1 and bridge not in found:
            found[bridge] = found.get(slots[0], slots[0])
    unread = _unread_claims(latest)
    kept = {name: slot for name, slot in before.items() if slot in unread} if unread else {}
    return {**kept, **found, **match_unnamed_gpus(latest)}


def keep_last_mounts(owners: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return the owners with the mounts of the last round that are gone now.

    systemd unmounts a file system when its disk disappears, so the round that reads the loss may find none.
    """
    return {**{name: slot for name, slot in before.items() if target_kind(name) == "fs"}, **owners}


def _unread_claims(latest: Mapping[str, Reading]) -> set[str]:
    """Slots whose claim to another name could not be read."""
    return {
        seen.target
        for reading in latest.values()
        for seen in reading.observations
        if seen.status in UNREADABLE or not _CLAIMS.isdisjoint(seen.unreadable)
    }


def match_unnamed_gpus(latest: Mapping[str, Reading]) -> dict[str, str]:
    """Return the slot of each GPU that NVML knows by its index alone, and of its NVLinks.

    The driver has as many GPUs on the bus that NVML does not name as NVML has without an address: they are
    the same. Where there are several, NVML's order decides, if it is that of the bus for all others.
    """
    nvml, bus = latest.get("nvml"), latest.get("pci")
    slots = [seen.target for seen in nvml.observations] if nvml is not None else []
    listed = list(dict.fromkeys(slot for slot in slots if target_kind(slot) == "gpu"))
    unnamed = [slot for slot in listed if gpu_index(slot) is not None]
    if not unnamed or bus is None or bus.unlisted("gpu"):
        return {}
    free = sorted(_bound_gpus(bus) - set(listed))
    if len(free) != len(unnamed):
        return {}
    names = dict(zip(unnamed, free, strict=True))
    order = [names.get(slot, slot) for slot in listed]
    if len(unnamed) > 1 and order != sorted(order):
        return {}
    links = {
        slot: parent_target(slot)
        for slot in slots
        if target_kind(slot) == "nvlink" and parent_target(slot) in names
    }
    return {**names, **{link: link.replace(gpu, names[gpu], 1) for link, gpu in links.items()}}


def _bound_gpus(bus: Reading) -> set[str]:
    """GPUs on the bus that the driver has, as far as this container may see them."""
    gpus = [seen for seen in bus.observations if target_kind(seen.target) == "gpu"]
    shown = {seen.target for seen in gpus if seen.signals.get("pci.procfs") is True}
    return shown or {seen.target for seen in gpus if seen.signals.get("pci.driver") == "nvidia"}


def _name(observation: Observation) -> str:
    """The kernel's own name for a port's device, a file system's or a DIMM, as a slot; empty for others."""
    signals = observation.signals
    if "port.pci" in signals:
        return pci_target(str(signals["port.pci"]))
    if "fs.device" in signals:
        return filesystem_target(str(signals["fs.device"]).removeprefix("/dev/"))
    if target_kind(observation.target) == "dimm" and observation.component is not None:
        return f"dimm/{observation.component.id}"
    return ""


def attribute_reading(reading: Reading, owners: Mapping[str, str]) -> Reading:
    """Return a reading in which each observation is at the slot that owns it."""
    if not any(seen.events or seen.unlisted or seen.target in owners for seen in reading.observations):
        return reading
    disks = _mounted_disks(owners)
    moved = tuple(
        part for seen in reading.observations for part in _owned(_with_volumes(seen, owners, disks), owners)
    )
    if any(gpu_index(seen.target) is not None for seen in moved):
        return replace(reading, observations=moved)
    return replace(reading, observations=tuple(_all_named(seen) for seen in moved))


def _mounted_disks(owners: Mapping[str, str]) -> frozenset[str]:
    """Return the slots of the disks that file systems of the host are mounted from."""
    return frozenset(disk_of_device(name.removeprefix("fs:")) for name in owners if target_kind(name) == "fs")


def _with_volumes(observation: Observation, owners: Mapping[str, str], disks: frozenset[str]) -> Observation:
    """Return the observation with the events of a volume where the host has nothing mounted from the disk.

    disks: slots of disks with a mount. A file system's event needs a mount of the very device.
    """
    if target_kind(observation.target) != "disk" or not observation.events:
        return observation
    device = observation.target.removeprefix("disk/")
    has_mount = {"fs": filesystem_target(device) in owners, "disk": disk_of_device(device) in disks}
    events = tuple(
        replace(event, signal=_VOLUME_EVENTS[event.signal])
        if event.signal in _VOLUME_EVENTS and not has_mount[event.signal.split(".")[0]]
        else event
        for event in observation.events
    )
    return replace(observation, events=events)


def _all_named(observation: Observation) -> Observation:
    """The node's observation by NVML once every GPU has its name: its list of GPUs is whole."""
    if observation.source != "nvml" or "gpu" not in observation.unlisted:
        return observation
    return replace(
        observation, unlisted={name: why for name, why in observation.unlisted.items() if name != "gpu"}
    )


def _owned(observation: Observation, owners: Mapping[str, str]) -> Iterator[Observation]:
    """An observation at its owner's slot, in parts where its events have several owners."""
    slot = observation.target
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
    if target_kind(slot) != "disk":
        return owners.get(slot, slot)
    device = slot.removeprefix("disk/")
    return (
        owners.get(filesystem_target(device), slot)
        if event.signal.startswith("fs.")
        else disk_of_device(device)
    )
