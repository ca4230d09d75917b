"""File systems and the disks that they are on. Pure."""

from __future__ import annotations

import re

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings

# A disk, and what its namespaces, paths and partitions are called: nvme3n1p2, nvme0c3n1, sda1, mmcblk0p1.
# Source: Linux drivers/nvme/host; block (a `p` stands before the partition where the disk ends in a digit).
_DISK = re.compile(
    r"(?:nvme\d+c(?P<path>\d+)n\d+|(?P<nvme>nvme\d+)n\d+|(?P<letters>(?:sd|hd|vd|xvd)[a-z]+)|(?P<digit>mmcblk\d+))"
    r"(?:p?\d+)?$"
)


def disk_of_device(device: str) -> str:
    """Slot of the disk that a block device is, or is a part of: `nvme3n1p2` → `disk/nvme3`.

    A device of which the name does not say so, such as `dm-0`, stays what it is.
    """
    found = _DISK.match(device)
    if found is None:
        return f"disk/{device}"
    path = found["path"]
    return f"disk/nvme{path}" if path else f"disk/{found['nvme'] or found['letters'] or found['digit']}"


def _writable(latest: LatestReadings, filesystem: str) -> Values:
    """`fs.writable`: whether the file system is mounted for writing."""
    read_only = latest.get(filesystem, "fs.read_only")
    if isinstance(read_only, bool):
        yield "fs.writable", not read_only


def _disk(latest: LatestReadings, filesystem: str) -> Values:
    """`fs.disk`: the disk of this node that the file system is on."""
    device = str(latest.get(filesystem, "fs.device") or "")
    if device.startswith("/dev/"):
        yield "fs.disk", disk_of_device(device.removeprefix("/dev/"))


DERIVATIONS = (
    Derivation("fs", ("fs.writable",), _writable),
    Derivation("fs", ("fs.disk",), _disk),
)
