from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeguard.derive.ports import expected, fabric
from nodeguard.derive.world import World
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from tests.derive.look import expecting, machine, seen, told

EIGHT = expecting(ports=4, port_link_layer="InfiniBand")


def node(up: int, down: int = 0, *, spare: int = 0, layer: str = "InfiniBand", peers: bool = False) -> World:
    """Ports p0, p1, … of one make, some of them up; s0, s1, … of another, all down."""
    rows = []
    for number in range(up + down + spare):
        name = f"p{number}" if number < up + down else f"s{number - up - down}"
        signals: dict[str, Scalar] = {"port.up": number < up, "port.link_layer": layer, "port.board": name[0]}
        if peers:
            signals["port.up~peers"] = True
        rows.append(seen("infiniband", f"port/{name}/1", signals))
    return machine(*rows)


def wanted(
    look: World, platform: Platform | None = None, were_up: Mapping[str, float] | None = None
) -> dict[str, str]:
    """Who expects each port that is expected."""
    result = told(expected(look, platform, were_up or {}))
    return {
        slot.split("/")[1]: str(one["port.expected_by"])
        for slot, one in result.items()
        if "port.expected" in one
    }


def test_a_port_that_is_up_is_expected_and_a_cage_without_a_cable_is_not() -> None:
    assert wanted(node(1, 1)) == {"p0": "itself"}


def test_a_port_that_was_up_is_expected() -> None:
    assert wanted(node(1, 2), were_up={"port/p1/1": 1.0, "port/p2/1": 0.0}) == {
        "p0": "itself",
        "p1": "inventory",
    }


def test_a_port_whose_peers_are_up_is_expected() -> None:
    assert wanted(node(0, 1, peers=True)) == {"p0": "peers"}


def test_a_platform_expects_all_of_its_fabric_where_too_few_are_up() -> None:
    assert wanted(node(3, 1), EIGHT) == dict.fromkeys(("p0", "p1", "p2", "p3"), "platform")


def test_a_platform_expects_no_more_than_it_has() -> None:
    assert wanted(node(4, 2), EIGHT) == dict.fromkeys(("p0", "p1", "p2", "p3"), "platform")


def test_a_port_of_another_make_is_not_of_the_fabric() -> None:
    assert wanted(node(3, 1, spare=2), EIGHT).keys() == {"p0", "p1", "p2", "p3"}


def test_a_port_of_another_link_layer_is_not_of_the_fabric() -> None:
    assert fabric(node(2, layer="Ethernet"), EIGHT) == set()


def test_a_platform_may_fix_the_names() -> None:
    platform = expecting(port_devices=("p1", "p9"))
    assert fabric(node(1, 1), platform) == {"port/p1/1"}
    assert wanted(node(0, 2), platform) == {"p1": "platform"}


@pytest.mark.parametrize(("platform", "says"), [(None, None), (EIGHT, True)])
def test_whether_a_port_is_of_the_fabric_is_said_where_the_platform_knows(
    platform: Platform | None, says: bool | None
) -> None:
    result = told(expected(node(4), platform, {}))
    assert {one.get("port.in_fabric") for one in result.values()} == {says}
