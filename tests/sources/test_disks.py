from __future__ import annotations

import errno

import pytest

from nodeguard.model.observation import Component
from nodeguard.model.signal import Scalar
from nodeguard.sources.disks import DisksSource, mapper_kind
from tests.sources.fake_machine import FakeMachine, by_target

SWAPS = """Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/dm-1                               partition\t8388604\t\t0\t\t-2
/swap\\040file                           file\t\t1048572\t\t0\t\t-3
"""
CONTROLLER = "../../devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0/nvme/nvme1"
FILES = {
    "/sys/block/md0/md/level": "raid1\n",
    "/sys/block/md0/md/raid_disks": "2\n",
    "/sys/block/md0/md/degraded": "1\n",
    "/sys/block/dm-1/dm/name": "vg-swap\n",
    "/sys/block/dm-1/dm/uuid": "LVM-nJ3EYHBmGxSEwsVXPtVNRSV6R8gcPjrv\n",
    "/sys/class/nvme/nvme1/transport": "pcie\n",
    "/sys/class/nvme/nvme1/model": "SAMSUNG MZQL23T8HCLS-00A07              \n",
    "/sys/class/nvme/nvme1/serial": "S64HNE0T500123      \n",
    "/sys/class/nvme/nvme1/nvme1n1/size": "7501476528\n",
    "/sys/class/nvme/nvme1/ng1n1/dev": "237:0\n",
    "/proc/swaps": SWAPS,
}
LINKS = {
    "/sys/block/md0/slaves/nvme1n1": "../../../nvme1n1",
    "/sys/block/dm-1/slaves/md0": "../../md0",
    "/sys/block/nvme1n1": "../devices/nvme1n1",
    "/sys/class/nvme/nvme1": CONTROLLER,
}


def signals(machine: FakeMachine, target: str) -> dict[str, Scalar]:
    return by_target(DisksSource(), machine)[target].signals


def test_devices_have_the_devices_that_they_are_built_from() -> None:
    machine = FakeMachine(FILES, links=LINKS)
    assert signals(machine, "disk/md0") == {
        "disk.slaves": "nvme1n1",
        "md.level": "raid1",
        "md.disks": 2,
        "md.degraded": 1,
    }
    assert signals(machine, "disk/dm-1") == {
        "disk.slaves": "md0",
        "disk.mapper_name": "vg-swap",
        "disk.mapper_kind": "LVM",
    }
    assert signals(machine, "node") == {"host.swap_devices": "dm-1"}


def test_controller_has_its_namespaces_and_its_port_of_the_host() -> None:
    observation = by_target(DisksSource(), FakeMachine(FILES, links=LINKS))["disk/nvme1"]
    assert observation.signals == {
        "disk.transport": "pcie",
        "disk.model": "SAMSUNG MZQL23T8HCLS-00A07",
        "disk.namespaces": "nvme1n1",
        "disk.root_port": "0000:a0:01.0",
    }
    assert observation.component == Component("S64HNE0T500123", "SAMSUNG MZQL23T8HCLS-00A07")


@pytest.mark.parametrize(
    ("place", "port"),
    [
        ("../../devices/pci0000:00/0000:00:1f.0/nvme/nvme1", None),
        ("../../devices/virtual/nvme-fabrics/ctl/nvme1", None),
        (
            "../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme1",
            "0000:00:0e.0",
        ),
    ],
)
def test_controller_on_the_first_bus_has_no_port_above(place: str, port: str | None) -> None:
    machine = FakeMachine(FILES, links={**LINKS, "/sys/class/nvme/nvme1": place})
    assert signals(machine, "disk/nvme1").get("disk.root_port") == port


def test_path_to_a_shared_namespace_is_one_of_the_namespace() -> None:
    machine = FakeMachine({"/sys/class/nvme/nvme2/nvme0c2n1/size": "1\n"})
    assert signals(machine, "disk/nvme2")["disk.namespaces"] == "nvme0n1"


def test_disks_that_cannot_be_listed_are_not_absent() -> None:
    machine = FakeMachine(FILES, links=LINKS, errors={"/sys/block": errno.EACCES})
    assert "disk" in by_target(DisksSource(), machine)["node"].unlisted


def test_machine_without_disks_has_none() -> None:
    assert list(by_target(DisksSource(), FakeMachine({}))) == ["node"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mpath-360000000000000000e00000000010001\n", "mpath"),
        ("CRYPT-LUKS2-0123-root", "CRYPT"),
        ("", None),
        ("x", None),
    ],
)
def test_kind_is_the_prefix_of_the_uuid(text: str, kind: str | None) -> None:
    assert mapper_kind(text) == kind


@pytest.mark.parametrize(("text", "number"), [("8\n", 8), ("8 (4)\n", None), ("0\n", None)])
def test_number_of_disks_of_a_changing_array_is_unknown(text: str, number: int | None) -> None:
    machine = FakeMachine({**FILES, "/sys/block/md0/md/raid_disks": text}, links=LINKS)
    assert signals(machine, "disk/md0").get("md.disks") == number
