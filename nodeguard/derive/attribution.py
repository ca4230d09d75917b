"""Attribution of observations to targets that the kernel or NVML names in another way. Pure.

Events of a PCI function belong to the GPU, switch or port at its address. Events of a block device belong to
the file system or the disk; what they mean depends on how the host uses the disk. Events of a DIMM's label
belong to the DIMM. Data of a GPU that NVML knows without a PCI address belong to the GPU that the bus lists
and NVML does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.derive.disks import disk_of_device, mapped_mounts
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.finding import Action
from nodeguard.model.observation import UNREADABLE, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import filesystem_target, gpu_index, parent_target, pci_target, target_kind

_TargetsByName = dict[str, list[str]]

# The event that each event of a disk or file system becomes where nothing of the host depends on it, and the
# disk is not one of this machine: the same lines come from detached cloud volumes, pods' volumes, USB sticks,
# virtual media and passive paths.
_VOLUME_EVENTS = {
    "disk.lost": "volume.lost",
    "disk.removed": "volume.lost",
    "disk.controller_down": "volume.lost",
    "disk.timeout": "volume.timeout",
    "disk.io_error": "volume.error",
    "disk.no_path": "volume.error",
    "disk.beyond_end": "volume.error",
    "fs.kernel_error": "volume.error",
    "fs.shut_down": "volume.error",
}
_MOUNTED_VOLUME_EVENTS = {
    "disk.removed": "disk.lost",
    "disk.timeout": "volume.timeout",
    "disk.controller_down": "volume.controller_down",
}
# The same for a disk of known use. An unused disk that left without a failed reset may have been taken out of
# its bay on purpose.
_EVENTS_BY_USE = {
    "sole": {"disk.removed": "disk.lost"},
    "unread": _MOUNTED_VOLUME_EVENTS,
    "remote": _MOUNTED_VOLUME_EVENTS,
    "redundant": {"disk.lost": "disk.failed", "disk.removed": "disk.failed"},
    "local": {"disk.lost": "disk.failed", "disk.removed": "volume.lost"},
}

# Events of a disk in use that ask for another disk.
_ACTED_ON = frozenset({"disk.lost", "disk.io_error", "disk.no_path", "disk.beyond_end"})

# Events of the NFS client. Its lines name a server at most, never a mount.
_NFS_EVENTS = frozenset({"fs.locks_lost", "fs.recovery_failed"})
# The name of an NFS mount's device, `SERVER:/PATH`. Devices of Lustre have an `@`, those of Ceph a port.
_NFS_DEVICE = re.compile(r"fs:(?P<server>\[[^\]]+\]|[^:@/]+):/")

# Signals with another name of a target's device.
_NAME_SIGNALS = frozenset({"pci.upstream", "port.pci", "fs.device"})


def find_owners(latest: Mapping[str, Reading], before: Mapping[str, str]) -> dict[str, str]:
    """Return the target for each other name of it.

    The names are: the PCI address of a GPU or NVSwitch, of a device with one RDMA port, and of the bridge
    right above one of these, because events of the bridge's link are those of its one device; the device of a
    file system; the label of a DIMM that no other DIMM has; the index of a GPU, see match_unnamed_gpus.

    latest: each source's latest reading. before: the result of the last round, which stays valid for a target
    with names that could not be read now.
    """
    owners: dict[str, str] = {}
    named: _TargetsByName = {}
    below: _TargetsByName = {}
    for reading in latest.values():
        for observation in reading.observations:
            target, signals = observation.target, observation.signals
            if "pci.upstream" in signals:
                below.setdefault(pci_target(str(signals["pci.upstream"])), []).append(target)
            if on_bus := _name_on_bus(target):
                owners[on_bus] = target
            name = _kernel_name(observation)
            if name:
                named.setdefault(name, []).append(target)
    owners.update(_owners_of_names(named, owners))
    owners.update(mapped_mounts(latest))
    for bridge, targets in below.items():
        if len(targets) == 1 and bridge not in owners:
            owners[bridge] = owners.get(targets[0], targets[0])
    unread = _targets_with_unread_names(latest)
    retained = {name: target for name, target in before.items() if target in unread} if unread else {}
    return {**retained, **owners, **match_unnamed_gpus(latest)}


def _owners_of_names(named: _TargetsByName, switches: Mapping[str, str]) -> dict[str, str]:
    """Return the owner of each name that one target has. switches: GPUs and NVSwitches by PCI address.

    The port of a function that manages NVSwitches is no port of the network, and belongs to the function.
    """
    owners: dict[str, str] = {}
    for name, targets in named.items():
        if name in switches:
            owners.update(dict.fromkeys(targets, switches[name]))
        elif len(targets) == 1:
            owners[name] = targets[0]
    return owners


def event_owners_of(
    readings: Iterable[Reading], latest: LatestReadings, owners: Mapping[str, str], before: Mapping[str, str]
) -> dict[str, str]:
    """Return the owners for events of this round.

    With mounts of the last round that are gone now: systemd unmounts a file system when its disk disappears,
    so the round that reads the loss may find none. With GPUs and NVSwitches that only the log names.

    owners: of the latest readings. before: those of the last round.
    """
    mounts = {name: target for name, target in before.items() if target_kind(name) == "fs"}
    logged = {}
    for reading in readings:
        for observation in reading.observations:
            name = _name_on_bus(observation.target)
            if observation.events and name and not latest.is_listed(name):
                logged[name] = observation.target
    return {**mounts, **logged, **owners}


def _name_on_bus(target: str) -> str:
    """Return the PCI function of a GPU or NVSwitch, as a target; empty for others and without an address."""
    if target_kind(target) not in {"gpu", "nvswitch"} or gpu_index(target) is not None:
        return ""
    return pci_target(target.split("/")[1])


def _targets_with_unread_names(latest: Mapping[str, Reading]) -> set[str]:
    """Return the targets with names that could not be read."""
    return {
        observation.target
        for reading in latest.values()
        for observation in reading.observations
        if observation.status in UNREADABLE or not _NAME_SIGNALS.isdisjoint(observation.unreadable)
    }


def match_unnamed_gpus(latest: Mapping[str, Reading]) -> dict[str, str]:
    """Return the target of each GPU that NVML knows by its index only, and of its NVLinks.

    NVML's GPUs without an address are the driver's GPUs on the bus that NVML does not list, if their numbers
    are equal. Several are matched in NVML's order, if that is the order of the bus for all other GPUs.
    """
    nvml, bus = latest.get("nvml"), latest.get("pci")
    targets = [observation.target for observation in nvml.observations] if nvml is not None else []
    listed = list(dict.fromkeys(target for target in targets if target_kind(target) == "gpu"))
    unnamed = [target for target in listed if gpu_index(target) is not None]
    if not unnamed or bus is None or bus.unlisted("gpu"):
        return {}
    free = sorted(_bound_gpus(bus) - set(listed))
    if len(free) != len(unnamed):
        return {}
    names = dict(zip(unnamed, free, strict=True))
    order = [names.get(target, target) for target in listed]
    if len(unnamed) > 1 and order != sorted(order):
        return {}
    links = {
        target: parent_target(target)
        for target in targets
        if target_kind(target) == "nvlink" and parent_target(target) in names
    }
    return {**names, **{link: link.replace(gpu, names[gpu], 1) for link, gpu in links.items()}}


def _bound_gpus(bus: Reading) -> set[str]:
    """Return the GPUs on the bus that are bound to the driver and visible in this container."""
    gpus = [observation for observation in bus.observations if target_kind(observation.target) == "gpu"]
    visible = {observation.target for observation in gpus if observation.signals.get("pci.procfs") is True}
    return visible or {
        observation.target for observation in gpus if observation.signals.get("pci.driver") == "nvidia"
    }


def _kernel_name(observation: Observation) -> str:
    """Return the kernel's name of a port, file system or DIMM, as a target; empty for others."""
    signals = observation.signals
    if "port.pci" in signals:
        return pci_target(str(signals["port.pci"]))
    if "fs.device" in signals:
        return filesystem_target(str(signals["fs.device"]).removeprefix("/dev/"))
    if target_kind(observation.target) == "dimm" and observation.component is not None:
        return f"dimm/{observation.component.id}"
    return ""


def attribute_reading(reading: Reading, owners: Mapping[str, str], uses: Mapping[str, str]) -> Reading:
    """Return a reading with each observation at the target that owns it. uses: see disks.disk_uses."""
    if not any(
        observation.events or observation.unlisted or observation.target in owners
        for observation in reading.observations
    ):
        return reading
    moved: list[Observation] = []
    for observation in reading.observations:
        moved += _at_owner(_by_disk_use(observation, owners, uses), owners)
    if all(gpu_index(observation.target) is None for observation in moved):
        moved = [_with_complete_gpu_list(observation) for observation in moved]
    return replace(reading, observations=tuple(moved))


def _by_disk_use(observation: Observation, owners: Mapping[str, str], uses: Mapping[str, str]) -> Observation:
    """Return the observation with the events of a disk named by how the host uses the disk.

    An event of a file system needs a mount of the same device.
    """
    if target_kind(observation.target) != "disk" or not observation.events:
        return observation
    device = observation.target.removeprefix("disk/")
    use = uses.get(disk_of_device(device), "")
    of_disk = _EVENTS_BY_USE.get(use, _VOLUME_EVENTS)
    # A volume is no part that a technician can replace.
    added: dict[str, Scalar] = {"action": Action.CONTACT_SUPPORT.value} if use in {"unread", "remote"} else {}
    of_filesystem = {} if filesystem_target(device) in owners else _VOLUME_EVENTS
    events = []
    for event in observation.events:
        names = of_filesystem if event.signal.startswith("fs.") else of_disk
        signal = names.get(event.signal, event.signal)
        fields = event.fields | added if signal in _ACTED_ON else event.fields
        events.append(replace(event, signal=signal, fields=fields))
    return replace(observation, events=tuple(events))


def _with_complete_gpu_list(observation: Observation) -> Observation:
    """Return NVML's observation of the node with a complete list of GPUs, once every GPU is matched."""
    if observation.source != "nvml" or "gpu" not in observation.unlisted:
        return observation
    return replace(
        observation, unlisted={name: reason for name, reason in observation.unlisted.items() if name != "gpu"}
    )


def _at_owner(observation: Observation, owners: Mapping[str, str]) -> Iterator[Observation]:
    """Yield an observation at its owner; one for each owner where its events have several."""
    observed = observation.target
    by_target: dict[str, tuple[Event, ...]] = {}
    for event in observation.events:
        target = _event_target(observed, event, owners)
        by_target[target] = (*by_target.get(target, ()), event)
    if not by_target:
        by_target[owners.get(observed, observed)] = ()
    for target, events in by_target.items():
        same = target == observed and len(by_target) == 1
        yield observation if same else replace(observation, target=target, events=events)


def _event_target(target: str, event: Event, owners: Mapping[str, str]) -> str:
    if "label" in event.fields:
        return owners.get(f"dimm/{event.fields['label']}", target)
    if event.signal in _NFS_EVENTS:
        return _sole_nfs_mount(event, owners) or target
    if target_kind(target) != "disk":
        return owners.get(target, target)
    device = target.removeprefix("disk/")
    return (
        owners.get(filesystem_target(device), target)
        if event.signal.startswith("fs.")
        else disk_of_device(device)
    )


def _sole_nfs_mount(event: Event, owners: Mapping[str, str]) -> str:
    """Return the mount that an event of the NFS client is about; empty where it could be several."""
    server = event.fields.get("server")
    devices = ((_NFS_DEVICE.match(name), target) for name, target in owners.items())
    mounts = {target for device, target in devices if device and server in {None, device["server"]}}
    return mounts.pop() if len(mounts) == 1 else ""
