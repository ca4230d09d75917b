"""Tests for nodeguard.sources.pci: adapters that manage NVSwitches, by their vital product data."""

from __future__ import annotations

import errno

import pytest
from msgspec.structs import replace

from nodeguard.model.target import NODE
from nodeguard.sources.pci import PciSource
from tests.sources.fake_machine import FakeMachine, by_target
from tests.sources.test_pci import BUS, COUNTS, GPU, function, links

VPD = "\x82\x20\x00NVIDIA ConnectX-7\x90\x40\x00SN\x0dMT2515X0{}V2\x0bSMDL={}\x78\ufffd"


def board(gpu: str = "2901", driver: str = "mlx5_core", **roles: str) -> FakeMachine:
    """A node with a GPU and ConnectX-7 functions. roles: what the VPD of each has, by its PCI function."""
    files = {**function(GPU, "10de", gpu, "030200"), **function("0000:05:00.7", "15b3", "1021", "020000")}
    for number, role in roles.items():
        address = f"0000:05:00.{number.removeprefix('f')}"
        files |= function(address, "15b3", "1021", "020700")
        files[f"{BUS}/{address}/vpd"] = VPD.format(number, role)
        if driver:
            files[f"{BUS}/{address}/infiniband/mlx5_{number}/node_guid"] = "\n"
    return FakeMachine(files, links=links(GPU, "nvidia"))


def test_functions_that_manage_nvswitches_are_no_network_adapters() -> None:
    observations = by_target(PciSource(), board(f0="SW_MNG", f1="MCX75310AAS", f2="SW_MNG"))
    assert observations.keys() == {
        NODE,
        "gpu/0000:3b:00",
        "nvswitch/0000:05:00",
        "nvswitch/0000:05:00.2",
        "pci/0000:05:00.1",
        "pci/0000:05:00.7",
    }
    assert observations["nvswitch/0000:05:00"].signals["pci.manages_nvswitches"] is True
    assert observations["pci/0000:05:00.1"].signals["pci.manages_nvswitches"] is False
    node = observations[NODE].signals
    assert [node[name] for name in sorted(COUNTS)] == [1, 2, 0, 2]


def test_manager_without_a_driver_is_not_counted() -> None:
    node = by_target(PciSource(), board(driver="", f0="SW_MNG"))[NODE]
    assert (node.signals["nvswitch.manager_count"], node.signals["rdma.function_count"]) == (0, 1)


def test_vpd_is_read_once_and_only_on_boards_of_blackwell() -> None:
    for gpu, number in (("2901", 1), ("3182", 1), ("2330", 0)):
        source, machine = PciSource(), board(gpu, f0="SW_MNG")
        for _ in range(3):
            by_target(source, machine)
        assert len([path for path in machine.asked if path.endswith("/vpd")]) == number


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ETIMEDOUT])
def test_role_of_a_function_is_unread_if_its_vpd_is(code: int) -> None:
    source, machine = PciSource(), board(f0="SW_MNG")
    machine.errors[f"{BUS}/0000:05:00.0/vpd"] = code
    for _ in range(2):
        observations = by_target(source, machine)
        assert "vpd" in observations["pci/0000:05:00.0"].unreadable["pci.manages_nvswitches"]
        assert observations[NODE].unreadable.keys() == {"nvswitch.manager_count"}
    assert len([path for path in machine.asked if path.endswith("/vpd")]) == 1


def test_role_of_a_function_is_unread_if_it_may_be_virtual() -> None:
    machine = board(f0="SW_MNG")
    machine.errors[f"{BUS}/0000:05:00.0/physfn"] = errno.EIO
    observation = by_target(PciSource(), machine)["pci/0000:05:00.0"]
    assert "pci.manages_nvswitches" in observation.unreadable


def test_managers_are_not_counted_if_the_driver_of_one_is_unread() -> None:
    machine = board(f0="SW_MNG", f1="SW_MNG", f2="MCX75310AAS")
    machine.errors[f"{BUS}/0000:05:00.0/infiniband"] = errno.EACCES
    node = by_target(PciSource(), machine)[NODE]
    assert "0000:05:00" in node.unreadable["nvswitch.manager_count"]
    machine.errors = {f"{BUS}/0000:05:00.2/infiniband": errno.EACCES}
    assert by_target(PciSource(), machine)[NODE].signals["nvswitch.manager_count"] == 2


def test_function_without_vpd_has_no_known_role() -> None:
    machine = board(f0="SW_MNG")
    del machine.files[f"{BUS}/0000:05:00.0/vpd"]
    observation = by_target(PciSource(), machine)["pci/0000:05:00.0"]
    assert observation.signals["pci.vpd"] is False
    assert "pci.manages_nvswitches" not in observation.signals.keys() | observation.unreadable.keys()


def test_slow_vpd_is_read_in_later_rounds() -> None:
    class SlowMachine(FakeMachine):
        def read(self, path: str) -> str:
            if path.endswith("/vpd"):
                self.instant = replace(self.instant, mono=self.instant.mono + 1.5)
            return super().read(path)

    fast = board(f0="SW_MNG", f1="SW_MNG", f2="SW_MNG")
    source, machine = PciSource(), SlowMachine(fast.files, links=fast.links)
    first, second = by_target(source, machine), by_target(source, machine)
    assert "later round" in first["pci/0000:05:00.2"].unreadable["pci.manages_nvswitches"]
    assert second[NODE].signals["nvswitch.manager_count"] == 3
