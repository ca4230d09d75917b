"""File systems and disks: how the host uses each disk, and which disks are local. Pure.

A file system names the device that it is mounted from. Below that there may be LVM, dm-crypt, md arrays and
multipath; the disk itself has no mount of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, disk_target, filesystem_target

# How the host uses a disk, by what its loss means; the first has precedence where several apply.
# sole: the host loses a file system or swap device. unread: the same, from a disk that was not read, so it
# may be a virtual one. remote: the same, from a disk that is known to be reached over a network or emulated.
# redundant: an array with redundancy goes on without it.
# path: other paths lead to the same data. local: nothing is mounted, and the disk is one of this machine.
# foreign: nothing is mounted, and the disk may be a remote, virtual or removable one.
USES = ("sole", "unread", "remote", "redundant", "path", "local", "foreign")

# Uses of a remote disk instead of those of a disk of this machine: it is a volume, no part to replace.
_USES_OF_REMOTE = {"sole": "remote", "redundant": "path"}

# Levels of md that do not survive the loss of a disk. Source: Linux Documentation/admin-guide/md.rst.
_WITHOUT_REDUNDANCY = frozenset({"raid0", "linear"})

# Models of NVMe controllers that clouds, hypervisors and DPUs emulate, on storage that is elsewhere. Sources:
# documentation of Amazon EBS, Azure (azure-vm-utils), Google Cloud, Alibaba Cloud, NVIDIA SNAP, QEMU, VMware.
_EMULATED = re.compile(
    r"elastic block stor|nvme accelerator|persistentdisk|nvme_card-pd|snap controller|qemu|virtual",
    re.IGNORECASE,
)
_PARTITION = re.compile(r"(nvme\d+n\d+|md\d+)p\d+$")

# Names of a disk's namespaces, paths and partitions: nvme3n1p2, nvme0c3n1, sda1, mmcblk0p1.
# Source: Linux drivers/nvme/host; block (a `p` stands before the partition where the disk ends in a digit).
_DISK = re.compile(
    r"(?:nvme\d+c(?P<path>\d+)n\d+|(?P<nvme>nvme\d+)n\d+|(?P<letters>(?:sd|hd|vd|xvd)[a-z]+)|(?P<digit>mmcblk\d+))"
    r"(?:p?\d+)?$"
)


def disk_of_device(device: str) -> str:
    """Return the target of the disk that a block device is on: `nvme3n1p2` → `disk/nvme3`.

    A device without a disk in its name, such as `dm-0`, is its own disk.
    """
    match = _DISK.match(device)
    if match is None:
        return disk_target(device)
    path = match["path"]
    return disk_target(f"nvme{path}" if path else match["nvme"] or match["letters"] or match["digit"])


# The sources that disk_uses reads.
DISK_SOURCES = frozenset({"disks", "filesystem"})

_Signals = Mapping[str, Scalar]


class BlockDevices(Struct, frozen=True):
    """The block devices of a machine, by the names that the kernel gives them."""

    slaves: dict[str, tuple[str, ...]]
    """The devices that a device is built from."""

    uses: dict[str, str]
    """What these are to the device, one of USES."""

    mapped: dict[str, str]
    """Kernel name by path below /dev."""

    controllers: dict[str, tuple[str, ...]]
    """The NVMe controllers of a namespace."""

    disks: dict[str, bool]
    """Whether a disk is local, for every disk by target."""

    remote: set[str]
    """Disks that are known to be reached over a network or emulated."""

    def disks_below(self, device: str) -> Iterator[tuple[str, str]]:
        """Yield the disks and built devices that a device is on, each with its use.

        device: its path below /dev.
        """
        pending, seen = [(self.kernel_name(device), "sole")], set[str]()
        while pending:
            partition, use = pending.pop()
            name = _PARTITION.sub(r"\1", partition)
            if partition in seen:
                continue
            seen.add(partition)
            below = self.slaves.get(name, ())
            pending += [(slave, _weaker(use, self.uses.get(name, "sole"))) for slave in below]
            controllers = self.controllers.get(name, ())
            for controller in controllers:
                yield disk_target(controller), use if len(controllers) == 1 else _weaker(use, "path")
            # The name of a namespace has the number of its subsystem, not always of a controller.
            is_read = bool(controllers) or name in self.slaves
            for disk in {disk_of_device(name), disk_of_device(partition)} - self.disks.keys():
                yield disk, use if is_read or use != "sole" else "unread"

    @property
    def built(self) -> set[str]:
        """Return the targets of the devices that are built from others."""
        return {disk_target(name) for name, slaves in self.slaves.items() if slaves}

    def kernel_name(self, device: str) -> str:
        """Return `dm-3` for `mapper/vg-root`. device: path below /dev."""
        return self.mapped.get(device, device)


def block_devices(observed: Iterable[tuple[str, _Signals]]) -> BlockDevices:
    """Return the block devices. observed: targets with the signals of the source `disks`."""
    devices = BlockDevices({}, {}, {}, {}, {}, set())
    for target, signals in observed:
        name = target.removeprefix("disk/")
        if "disk.slaves" in signals:
            devices.slaves[name] = tuple(str(signals["disk.slaves"]).split())
            devices.uses[name] = _use_of_slaves(name, signals, len(devices.slaves[name]))
        if "disk.mapper_name" in signals:
            devices.mapped[f"mapper/{signals['disk.mapper_name']}"] = name
        if "disk.transport" in signals:
            devices.disks[target] = _is_local(signals)
            if signals["disk.transport"] != "pcie" or _is_emulated(signals):
                devices.remote.add(target)
            for namespace in str(signals.get("disk.namespaces", "")).split():
                before = devices.controllers.get(namespace, ())
                devices.controllers[namespace] = (*before, name)
    # The volumes of an LVM array with redundancy have a volume of metadata each; they know it by its name.
    metadata = {kernel for path, kernel in devices.mapped.items() if "_rmeta_" in path}
    for name, slaves in devices.slaves.items():
        if not metadata.isdisjoint(slaves):
            devices.uses[name] = "redundant"
    return devices


def _use_of_slaves(name: str, signals: _Signals, number: int) -> str:
    """Return what its slaves are to a device. An array of unknown level is taken to have redundancy."""
    if number == 1:
        return "sole"
    if signals.get("disk.mapper_kind") == "mpath":
        return "path"
    is_redundant = name.startswith("md") and signals.get("md.level") not in _WITHOUT_REDUNDANCY
    return "redundant" if is_redundant else "sole"


def _is_local(signals: _Signals) -> bool:
    """Return whether an NVMe controller sits below a PCIe port of this host and is not emulated."""
    on_port = signals.get("disk.transport") == "pcie" and "disk.root_port" in signals
    return on_port and not _is_emulated(signals)


def _is_emulated(signals: _Signals) -> bool:
    """Return whether a cloud, a hypervisor or a data processing unit emulates the NVMe controller."""
    return _EMULATED.search(str(signals.get("disk.model", ""))) is not None


def _weaker(*uses: str) -> str:
    return max(uses, key=USES.index)


def disk_uses(latest: Mapping[str, Reading]) -> dict[str, str]:
    """Return how the host uses each disk, by target. latest: each source's latest reading."""
    devices = _of_reading(latest)
    uses = {disk: "local" if is_local else "foreign" for disk, is_local in devices.disks.items()}
    for device in _devices_in_use(latest):
        for disk, mounted in devices.disks_below(device):
            use = _USES_OF_REMOTE.get(mounted, mounted) if disk in devices.remote else mounted
            uses[disk] = _worse(use, uses.get(disk, "foreign"))
    return uses


def worst_uses(now: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return the worse use of each disk of two rounds.

    systemd unmounts a file system when its disk disappears, so the round that reads the loss may find none.
    """
    return {disk: _worse(now.get(disk, "foreign"), before.get(disk, "foreign")) for disk in {*now, *before}}


def _worse(*uses: str) -> str:
    return min(uses, key=USES.index)


def mapped_mounts(latest: Mapping[str, Reading]) -> dict[str, str]:
    """Return mounts by the kernel's name of their device: `fs:dm-3` for `/dev/mapper/vg-root`."""
    devices = _of_reading(latest)
    return {
        filesystem_target(devices.mapped[device]): target
        for target, device in _mounted_devices(latest)
        if device in devices.mapped
    }


def _of_reading(latest: Mapping[str, Reading]) -> BlockDevices:
    return block_devices(
        (observation.target, observation.signals) for observation in _observations(latest, "disks")
    )


def _observations(latest: Mapping[str, Reading], source: str) -> tuple[Observation, ...]:
    return latest[source].observations if source in latest else ()


def _devices_in_use(latest: Mapping[str, Reading]) -> Iterator[str]:
    for _, device in _mounted_devices(latest):
        yield device
    for observation in _observations(latest, "disks"):
        if observation.target == NODE:
            yield from str(observation.signals.get("host.swap_devices", "")).split()


def _mounted_devices(latest: Mapping[str, Reading]) -> Iterator[tuple[str, str]]:
    """Yield each file system on a device of this machine, with the device's path below /dev."""
    for observation in _observations(latest, "filesystem"):
        device = str(observation.signals.get("fs.device", ""))
        if device.startswith("/dev/"):
            yield observation.target, device.removeprefix("/dev/")


def _writable(latest: LatestReadings, filesystem: str) -> Values:
    """`fs.writable`: whether the file system is mounted for writing."""
    read_only = latest.get(filesystem, "fs.read_only")
    if isinstance(read_only, bool):
        yield "fs.writable", not read_only


def _disk(latest: LatestReadings, filesystem: str) -> Values:
    """`fs.disk`: the disk of this node that the file system is on, or the array if it is on several."""
    device = str(latest.get(filesystem, "fs.device") or "")
    if device.startswith("/dev/"):
        path = device.removeprefix("/dev/")
        devices = block_devices((target, latest.read_signals(target)) for target in latest.targets("disk"))
        below = {disk for disk, _ in devices.disks_below(path)} - devices.built
        yield "fs.disk", below.pop() if len(below) == 1 else disk_of_device(devices.kernel_name(path))


FILESYSTEM_DERIVATIONS = (
    Derivation("fs", ("fs.writable",), _writable),
    Derivation("fs", ("fs.disk",), _disk),
)
