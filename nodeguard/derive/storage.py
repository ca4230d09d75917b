"""File systems and the disks that they are on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodeguard.derive.world import World
from nodeguard.model.signal import Scalar

# A disk, and what its namespaces, paths and partitions are called: nvme3n1p2, nvme0c3n1, sda1, mmcblk0p1.
# Source: Linux drivers/nvme/host; block (a `p` stands before the partition where the disk ends in a digit).
_DISK = re.compile(
    r"(?:nvme\d+c(?P<path>\d+)n\d+|(?P<nvme>nvme\d+)n\d+|(?P<letters>(?:sd|hd|vd|xvd)[a-z]+)|(?P<digit>mmcblk\d+))"
    r"(?:p?\d+)?$"
)


def disk(device: str) -> str:
    """Slot of the disk that a block device is, or is a part of: `nvme3n1p2` → `disk/nvme3`.

    A device of which the name does not say so, such as `dm-0`, stays what it is.
    """
    found = _DISK.match(device)
    if found is None:
        return f"disk/{device}"
    path = found["path"]
    return f"disk/nvme{path}" if path else f"disk/{found['nvme'] or found['letters'] or found['digit']}"


def filesystems(world: World) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each file system, `fs.writable`; and `fs.disk`, where it is on a disk of this node."""
    for slot in world.slots("fs"):
        signals = world.of(slot)
        derived: dict[str, Scalar] = {}
        read_only, device = signals.get("fs.read_only"), str(signals.get("fs.device", ""))
        if isinstance(read_only, bool):
            derived["fs.writable"] = not read_only
        if device.startswith("/dev/"):
            derived["fs.disk"] = disk(device.removeprefix("/dev/"))
        yield slot, derived
