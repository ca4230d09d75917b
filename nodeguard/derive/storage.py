"""File systems: whether they are writable, and the disk that each is on. Pure."""

from __future__ import annotations

import re

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings

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
        return f"disk/{device}"
    path = match["path"]
    return f"disk/nvme{path}" if path else f"disk/{match['nvme'] or match['letters'] or match['digit']}"


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
