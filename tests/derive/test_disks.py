from __future__ import annotations

import pytest

from nodeguard.derive.disks import (
    FILESYSTEM_DERIVATIONS,
    disk_of_device,
    disk_uses,
    mapped_mounts,
    worst_uses,
)
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar
from tests.derive.readings import derived, machine, observe, readings


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
def test_partition_belongs_to_its_disk(device: str, name: str) -> None:
    assert disk_of_device(device) == f"disk/{name}"


def test_a_file_system_can_be_written_to_unless_it_is_read_only() -> None:
    latest = machine(
        observe("filesystem", "fs:/", {"fs.device": "/dev/nvme0n1p2", "fs.read_only": False}),
        observe("filesystem", "fs:/home", {"fs.device": "10.0.0.5:/home", "fs.read_only": True}),
        observe("filesystem", "fs:/x", {"fs.device": "tmpfs"}),
    )
    assert derived(latest, *FILESYSTEM_DERIVATIONS) == {
        "fs:/": {"fs.writable": True, "fs.disk": "disk/nvme0"},
        "fs:/home": {"fs.writable": False},
    }


def latest(*observations: Observation) -> dict[str, Reading]:
    """The latest reading of each source."""
    return {reading.source: reading for reading in readings(*observations)}


def mount(path: str, device: str) -> Observation:
    return observe("filesystem", f"fs:{path}", {"fs.device": device})


def nvme(number: int, namespaces: str = "", **signals: Scalar) -> Observation:
    """A local NVMe disk."""
    usual: dict[str, Scalar] = {
        "disk.transport": "pcie",
        "disk.model": "SAMSUNG MZQL23T8HCLS-00A07",
        "disk.root_port": f"0000:a{number}:01.0",
        "disk.namespaces": namespaces or f"nvme{number}n1",
    }
    changed = {f"disk.{name}": value for name, value in signals.items()}
    return observe("disks", f"disk/nvme{number}", {**usual, **changed})


def built(device: str, slaves: str, **signals: Scalar) -> Observation:
    """A block device that is built from others. signals: `level` of md, `kind` and `name` of device mapper."""
    names = {"level": "md.level", "kind": "disk.mapper_kind", "name": "disk.mapper_name"}
    return observe(
        "disks",
        f"disk/{device}",
        {"disk.slaves": slaves, **{names[key]: value for key, value in signals.items()}},
    )


STRIPES = (nvme(1), nvme(2), built("md0", "nvme1n1 nvme2n1", level="raid0"), mount("/raid", "/dev/md0"))


@pytest.mark.parametrize(
    ("observations", "uses"),
    [
        (STRIPES, {"nvme1": "sole", "nvme2": "sole", "md0": "sole"}),
        (
            (
                nvme(1),
                nvme(2),
                built("md127", "nvme1n1 nvme2n1", level="raid0"),
                mount("/raid", "/dev/md127p1"),
            ),
            {"nvme1": "sole", "nvme2": "sole", "md127": "sole", "md127p1": "sole"},
        ),
        (
            (nvme(1), nvme(2), built("md1", "nvme1n1p2 nvme2n1p2", level="raid1"), mount("/", "/dev/md1")),
            {"nvme1": "redundant", "nvme2": "redundant"},
        ),
        # The kernel has taken the other disk out of the mirror.
        (
            (nvme(1), nvme(2), built("md1", "nvme1n1p2", level="raid1"), mount("/", "/dev/md1")),
            {"nvme1": "sole", "nvme2": "local"},
        ),
        # The level could not be read.
        ((nvme(1), nvme(2), built("md1", "nvme1n1 nvme2n1"), mount("/", "/dev/md1")), {"nvme1": "redundant"}),
        (
            (nvme(1), built("dm-0", "nvme1n1p3", kind="CRYPT", name="root"), mount("/", "/dev/mapper/root")),
            {"nvme1": "sole"},
        ),
        (
            (
                *STRIPES[:3],
                built("dm-2", "md0", kind="LVM", name="vg-data"),
                built("dm-3", "dm-2", kind="CRYPT", name="data"),
                mount("/data", "/dev/mapper/data"),
            ),
            {"nvme1": "sole", "nvme2": "sole"},
        ),
        (
            (
                built("dm-1", "sda sdb", kind="mpath", name="mpatha"),
                built("dm-2", "dm-1", kind="LVM", name="vg-data"),
                mount("/data", "/dev/mapper/vg-data"),
            ),
            {"sda": "path", "sdb": "path", "dm-1": "sole", "dm-2": "sole"},
        ),
        (
            (
                built("dm-0", "nvme1n1", kind="LVM", name="vg-data_rimage_0"),
                built("dm-1", "nvme2n1", kind="LVM", name="vg-data_rimage_1"),
                built("dm-2", "nvme1n1", kind="LVM", name="vg-data_rmeta_0"),
                built("dm-3", "nvme2n1", kind="LVM", name="vg-data_rmeta_1"),
                built("dm-4", "dm-0 dm-1 dm-2 dm-3", kind="LVM", name="vg-data"),
                mount("/data", "/dev/mapper/vg-data"),
            ),
            {"nvme1": "redundant", "nvme2": "redundant"},
        ),
        # A mirror for the system, and the rest of its disks for a file system without redundancy.
        (
            (
                nvme(1),
                nvme(2),
                built("md1", "nvme1n1p2 nvme2n1p2", level="raid1"),
                mount("/", "/dev/md1"),
                mount("/scratch", "/dev/nvme2n1p3"),
            ),
            {"nvme1": "redundant", "nvme2": "sole"},
        ),
        ((nvme(1), observe("disks", "node", {"host.swap_devices": "nvme1n1p3"})), {"nvme1": "sole"}),
        ((nvme(1),), {"nvme1": "local"}),
        ((nvme(1, transport="tcp"),), {"nvme1": "foreign"}),
        ((nvme(1, model="Amazon Elastic Block Store"),), {"nvme1": "foreign"}),
        ((nvme(1, model="MSFT NVMe Accelerator v1.0"),), {"nvme1": "foreign"}),
        ((nvme(1, model="Amazon Elastic Block Store"), mount("/", "/dev/nvme1n1p1")), {"nvme1": "remote"}),
        ((nvme(1, transport="tcp"), mount("/x", "/dev/nvme1n1")), {"nvme1": "remote"}),
        # A mirror of two volumes of a cloud.
        (
            (
                nvme(1, model="Amazon Elastic Block Store"),
                nvme(2, model="Amazon Elastic Block Store"),
                built("md0", "nvme1n1 nvme2n1", level="raid1"),
                mount("/", "/dev/md0"),
            ),
            {"nvme1": "path", "nvme2": "path"},
        ),
        ((nvme(1, model="nvme_card-pd"),), {"nvme1": "foreign"}),
        ((nvme(1, model="NVIDIA NVMe SNAP Controller"),), {"nvme1": "foreign"}),
        ((observe("disks", "disk/nvme1", {"disk.transport": "pcie"}),), {"nvme1": "foreign"}),
        # Two controllers of one remote subsystem.
        (
            (
                nvme(1, "nvme0n1", transport="tcp"),
                nvme(2, "nvme0n1", transport="tcp"),
                mount("/x", "/dev/nvme0n1p1"),
            ),
            {"nvme1": "path", "nvme2": "path", "nvme0": "sole"},
        ),
        # After a disk was replaced, its controller has another number than its namespace.
        (
            (nvme(0), nvme(9, "nvme4n1"), mount("/x", "/dev/nvme4n1")),
            {"nvme0": "local", "nvme9": "sole", "nvme4": "sole"},
        ),
        # Nothing was read of the disks.
        ((mount("/", "/dev/sda2"), mount("/home", "10.0.0.5:/home")), {"sda": "unread"}),
        ((mount("/", "/dev/nvme0n1p2"),), {"nvme0": "unread"}),
        (
            (observe("disks", "disk/nvme0", {"disk.model": "x"}), mount("/", "/dev/nvme0n1p2")),
            {"nvme0": "unread"},
        ),
        # A device that names itself, as after a wrong reading.
        ((built("dm-0", "dm-0"), mount("/x", "/dev/dm-0")), {}),
    ],
)
def test_use_of_a_disk_follows_the_devices_above_it(
    observations: tuple[Observation, ...], uses: dict[str, str]
) -> None:
    found = disk_uses(latest(*observations))
    assert {name: found.get(f"disk/{name}") for name in uses} == uses


def test_worse_use_of_two_rounds_counts() -> None:
    assert worst_uses({"a": "local", "b": "sole"}, {"a": "sole", "c": "path"}) == {
        "a": "sole",
        "b": "sole",
        "c": "path",
    }


def test_mapped_device_has_its_mount_by_the_kernels_name() -> None:
    mapped = built("dm-3", "md0", name="vg-data")
    assert mapped_mounts(latest(mapped, mount("/data", "/dev/mapper/vg-data"), mount("/", "/dev/sda1"))) == {
        "fs:dm-3": "fs:/data"
    }


def test_disk_of_a_file_system_is_below_its_device() -> None:
    mapped = built("dm-0", "nvme1n1p3", name="root")
    observed = machine(mapped, nvme(1), mount("/", "/dev/mapper/root"), *STRIPES[1:])
    signals = derived(observed, *FILESYSTEM_DERIVATIONS)
    assert (signals["fs:/"]["fs.disk"], signals["fs:/raid"]["fs.disk"]) == ("disk/nvme1", "disk/md0")
