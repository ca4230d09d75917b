from __future__ import annotations

import pytest

from nodeguard.derive.planes import PLANE_DERIVATIONS
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from tests.derive.readings import derived, machine, observe, unread

NAMES = {"pci": "port.pci", "up": "port.up", "layer": "port.link_layer", "model": "port.device_type"}


def plane(name: str, **changed: Scalar) -> Observation:
    """A port of RoCE of a ConnectX-8."""
    usual: dict[str, Scalar] = {"pci": "0000:03:00.0", "up": True, "layer": "Ethernet", "model": "MT4131"}
    signals = {NAMES[key]: value for key, value in {**usual, **changed}.items()}
    return observe("infiniband", f"port/{name}/1", signals)


@pytest.mark.parametrize(
    ("first", "second", "is_lost"),
    [
        ({"up": False}, {}, True),
        ({"up": False}, {"up": False}, False),
        ({}, {"up": False}, False),
        ({"up": False}, {"pci": "0000:04:00.0"}, False),
        ({"up": False, "model": "MT4129"}, {"model": "MT4129"}, False),
        ({"up": False, "layer": "InfiniBand"}, {"layer": "InfiniBand"}, False),
    ],
)
def test_plane_is_lost_if_another_of_its_adapter_works(
    first: dict[str, Scalar], second: dict[str, Scalar], is_lost: bool
) -> None:
    ports = machine(plane("p0", **first), plane("p1", **{"pci": "0000:03:00.1", **second}))
    assert derived(ports, *PLANE_DERIVATIONS)["port/p0/1"]["port.lost_plane"] is is_lost


def test_plane_is_unknown_if_the_others_are_unread() -> None:
    other = Observation(
        "infiniband", "port/p1/1", signals={"port.pci": "0000:03:00.1"}, unreadable={"port.up": "refused"}
    )
    signals = unread(machine(plane("p0", up=False), other), *PLANE_DERIVATIONS)
    assert signals["port/p0/1"] == {"port.lost_plane": "refused"}


def test_plane_is_unknown_if_another_may_not_be_listed() -> None:
    node = Observation("infiniband", NODE, unlisted={"port": "refused"})
    signals = unread(machine(plane("p0", up=False), node), *PLANE_DERIVATIONS)
    assert signals["port/p0/1"] == {"port.lost_plane": "refused"}
    other = plane("p1", pci="0000:03:00.1")
    latest = machine(plane("p0", up=False), other, node)
    assert derived(latest, *PLANE_DERIVATIONS)["port/p0/1"]["port.lost_plane"] is True


@pytest.mark.parametrize("unknown", ["p0", "p1"])
def test_plane_is_unknown_if_the_adapter_of_it_or_of_a_port_that_works_is_unread(unknown: str) -> None:
    ports = [plane("p0", up=False), plane("p1", pci="0000:03:00.1"), plane("p2", pci="0000:04:00.0")]
    for number, port in enumerate(ports):
        if port.target == f"port/{unknown}/1":
            signals = {name: value for name, value in port.signals.items() if name != "port.pci"}
            unreadable = {"port.pci": "refused"}
            ports[number] = Observation("infiniband", port.target, signals=signals, unreadable=unreadable)
    assert "port.lost_plane" in unread(machine(*ports), *PLANE_DERIVATIONS)["port/p0/1"]


def test_ports_of_an_unknown_make_are_no_planes() -> None:
    made = [plane("p0", up=False, model=""), plane("p1", pci="0000:03:00.1", model="")]
    assert derived(machine(*made), *PLANE_DERIVATIONS)["port/p0/1"]["port.lost_plane"] is False


@pytest.mark.parametrize(
    ("rates", "planes", "lost"),
    [
        ("200 200 200 200", 4, 0),
        ("200 down 200 200", 4, 1),
        ("200 100 200 unread", 4, 1),
        ("down down", 2, 0),
        ("unread", 1, 0),
        ("", 1, 0),
    ],
)
def test_planes_below_the_fastest_are_lost(rates: str, planes: int, lost: int) -> None:
    ports = machine(observe("infiniband", "port/p0/1", {"port.up": True, "port.plane_rates": rates}))
    signals = derived(ports, *PLANE_DERIVATIONS)["port/p0/1"]
    assert (signals["port.planes"], signals["port.planes_lost"]) == (planes, lost)
