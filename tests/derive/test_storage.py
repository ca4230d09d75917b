from __future__ import annotations

import pytest

from nodeguard.derive.host import FILESYSTEM_DERIVATIONS, disk_of_device
from tests.derive.look import derived, machine, seen


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("nvme3", "nvme3"),
        ("nvme3n1", "nvme3"),
        ("nvme13n1p2", "nvme13"),
        ("nvme0c3n1", "nvme3"),
        ("sda", "sda"),
        ("sda1", "sda"),
        ("sdab12", "sdab"),
        ("vdb1", "vdb"),
        ("mmcblk0p1", "mmcblk0"),
        ("dm-0", "dm-0"),
        ("md0", "md0"),
        ("md127p1", "md127p1"),
        ("mapper/vg-sda1", "mapper/vg-sda1"),
    ],
)
def test_a_device_is_of_its_disk(device: str, name: str) -> None:
    assert disk_of_device(device) == f"disk/{name}"


def test_a_file_system_can_be_written_to_unless_it_is_read_only() -> None:
    look = machine(
        seen("filesystem", "fs:/", {"fs.device": "/dev/nvme0n1p2", "fs.read_only": False}),
        seen("filesystem", "fs:/home", {"fs.device": "10.0.0.5:/home", "fs.read_only": True}),
        seen("filesystem", "fs:/x", {"fs.device": "tmpfs"}),
    )
    assert derived(look, *FILESYSTEM_DERIVATIONS) == {
        "fs:/": {"fs.writable": True, "fs.disk": "disk/nvme0"},
        "fs:/home": {"fs.writable": False},
    }
