"""Source `disks`: how block devices are built from disks, and how NVMe controllers are reached."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodeguard.model import target as targets
from nodeguard.model.observation import Component, Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.sources.machine import Machine
from nodeguard.sources.mounts import unescape
from nodeguard.sources.readings import ObservationDraft, parse_count, parse_line
from nodeguard.sources.source import source

_BLOCK = "/sys/block"
_NVME = "/sys/class/nvme"
_SWAPS = "/proc/swaps"

# Block devices that are built from others: md arrays, device mapper and bcache.
_STACKED = re.compile(r"(?:md|dm-|bcache)\d+$")
# Namespaces of a controller, and its paths to a namespace of several controllers (Linux drivers/nvme/host).
_NAMESPACE = re.compile(r"nvme(?P<subsystem>\d+)(?:c\d+)?n(?P<number>\d+)$")


@source
class DisksSource:
    """Reads /sys/block, /sys/class/nvme and /proc/swaps; never a disk itself."""

    name = "disks"
    interval = 30.0
    deadline = 5.0
    paths: tuple[str, ...] = (_BLOCK, _NVME, _SWAPS)
    signals = signals_by_name(
        Signal("disk.slaves", "state", "block devices that the device is built from"),
        Signal("disk.mapper_name", "state", "name of a device below /dev/mapper"),
        Signal("disk.mapper_kind", "state", "subsystem that made it: LVM, CRYPT, mpath and others"),
        Signal("disk.transport", "state", "how an NVMe controller is reached: pcie, tcp, rdma, fc, loop"),
        Signal("disk.model", "state", "model of an NVMe disk"),
        Signal("disk.namespaces", "state", "block devices of an NVMe controller"),
        Signal("disk.root_port", "state", "address of the PCIe port of the host above an NVMe controller"),
        Signal("md.level", "state", "level of an md array: raid0, raid1, …"),
        Signal("md.disks", "state", "disks that an md array should have"),
        Signal("md.degraded", "state", "how many of these an md array with redundancy lacks"),
        Signal("host.swap_devices", "state", "block devices that the host swaps to"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        node = ObservationDraft(machine, self.name, targets.NODE)
        devices = node.list_targets(_BLOCK, "disk")
        controllers = node.list_targets(_NVME, "disk")
        for device in devices or ():
            if _STACKED.match(device):
                yield _stacked_device(machine, device).build()
        for controller in controllers or ():
            yield _nvme_controller(machine, controller)
        swaps = node.read_text(_SWAPS, "host.swap_devices")
        if swaps is not None:
            node.signals["host.swap_devices"] = " ".join(_swap_devices(swaps))
        yield node.build()


def _stacked_device(machine: Machine, device: str) -> ObservationDraft:
    draft = ObservationDraft(machine, DisksSource.name, targets.disk_target(device))
    path = f"{_BLOCK}/{device}"
    slaves = draft.list_names(f"{path}/slaves", "disk.slaves")
    if slaves is not None:
        draft.signals["disk.slaves"] = " ".join(slaves)
    if device.startswith("md"):
        draft.read("md.level", f"{path}/md/level", parse_line)
        draft.read("md.disks", f"{path}/md/raid_disks", _disk_number)
        draft.read("md.degraded", f"{path}/md/degraded", parse_count)
    elif device.startswith("dm"):
        draft.read("disk.mapper_name", f"{path}/dm/name", parse_line)
        draft.read("disk.mapper_kind", f"{path}/dm/uuid", mapper_kind)
    return draft


def _nvme_controller(machine: Machine, controller: str) -> Observation:
    draft = ObservationDraft(machine, DisksSource.name, targets.disk_target(controller))
    path = f"{_NVME}/{controller}"
    draft.read("disk.transport", f"{path}/transport", parse_line)
    model = draft.read("disk.model", f"{path}/model", parse_line)
    serial = draft.read_text(f"{path}/serial")
    names = draft.list_names(path, "disk.namespaces")
    if names is not None:
        namespaces = (_NAMESPACE.match(name) for name in names)
        draft.signals["disk.namespaces"] = " ".join(
            f"nvme{match['subsystem']}n{match['number']}" for match in namespaces if match
        )
    place = draft.read_link(path, "disk.root_port") or ""
    functions = [address for part in place.split("/") if (address := _function(part))]
    if len(functions) > 1:  # the last one is the controller itself
        draft.signals["disk.root_port"] = functions[0]
    part = Component(id=serial, model=model or "") if serial else None
    return draft.build(part)


def _function(name: str) -> str | None:
    """Return the PCI address that a directory is named after; `pci0000:00` and `0000:00` are buses."""
    return targets.function_address(name) if "." in name else None


def _disk_number(text: str) -> int | None:
    """Return a number of disks; None for an array that is being changed: `8 (4)`, or has no disks yet."""
    return parse_count(text) or None if text.isdecimal() else None


def mapper_kind(text: str) -> str | None:
    """Return the prefix of a device-mapper UUID, such as `LVM` or `mpath`; None without one.

    Partitions of a multipath device have `part1-mpath-…`; they are `part1`, on the multipath device.
    """
    kind, separator, _ = text.partition("-")
    return parse_line(kind) if separator else None


def _swap_devices(text: str) -> Iterator[str]:
    for line in text.splitlines()[1:]:
        fields = line.split()
        if fields[1:2] == ["partition"]:
            yield unescape(fields[0]).removeprefix("/dev/")
