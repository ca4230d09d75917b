"""Tests for nodeguard.sources.infiniband: adapters with several planes."""

from __future__ import annotations

import errno

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.infiniband import InfinibandSource
from tests.sources.fake_machine import FakeMachine, by_target
from tests.sources.test_infiniband import CLASS, INFINIBAND, device, files_below

FAST, DOWN = "200 Gb/sec (1X XDR)", "2.5 Gb/sec (1X SDR)"


def planes(*rates: str, state: str = "4: ACTIVE") -> FakeMachine:
    """A device with one port, and the device of its planes at the same function. rates: of the planes."""
    files = device("mlx5_0", {**INFINIBAND, "rate": "800 Gb/sec (4X XDR)"})
    for number, rate in enumerate(rates, start=1):
        plane = {**INFINIBAND, "state": state, "rate": rate}
        files |= files_below(f"{CLASS}/smi0/ports/{number}", plane)
    links = {f"{CLASS}/{name}/device": "../../../0000:9c:00.0" for name in ("mlx5_0", "smi0")}
    return FakeMachine(files, links=links)


@pytest.mark.parametrize(
    ("machine", "rates"),
    [
        (planes(FAST, FAST, FAST, FAST), "200 200 200 200"),
        (planes(FAST, DOWN), "200 down"),
        (planes(FAST, FAST, state="1: DOWN"), "down down"),
        (planes(FAST, "N/A"), "200 unread"),
    ],
)
def test_planes_of_a_port_are_no_ports(machine: FakeMachine, rates: str) -> None:
    observations = by_target(InfinibandSource(), machine)
    assert observations.keys() == {NODE, "port/mlx5_0/1"}
    assert observations["port/mlx5_0/1"].signals["port.plane_rates"] == rates


@pytest.mark.parametrize("files", [("state",), ("rate",), ("state", "rate")])
def test_unread_plane_is_not_down(files: tuple[str, ...]) -> None:
    machine = planes(FAST, DOWN if files == ("state",) else FAST)
    machine.errors |= {f"{CLASS}/smi0/ports/2/{file}": errno.EIO for file in files}
    assert by_target(InfinibandSource(), machine)["port/mlx5_0/1"].signals["port.plane_rates"] == "200 unread"


def test_two_devices_of_one_port_each_at_one_function_are_no_planes() -> None:
    assert by_target(InfinibandSource(), planes(FAST)).keys() == {NODE, "port/mlx5_0/1", "port/smi0/1"}
