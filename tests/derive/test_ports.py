from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.ports import (
    drop_unused_counters,
    fabric_count_derivation,
    fabric_ports,
    port_counter_derivations,
    port_derivations,
    track_heartbeats,
)
from nodeguard.model.observation import Observation
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from tests.derive.readings import derived, expecting, machine, observe, readings, unread

EIGHT = expecting(ports=4, port_link_layer="InfiniBand")


def node(
    up: int, down: int = 0, *, spare: int = 0, layer: str = "InfiniBand", peers: bool = False
) -> LatestReadings:
    """Ports p0, p1, … of one make, some of them up; s0, s1, … of another, all down."""
    rows = []
    for number in range(up + down + spare):
        name = f"p{number}" if number < up + down else f"s{number - up - down}"
        signals: dict[str, Scalar] = {"port.up": number < up, "port.link_layer": layer, "port.board": name[0]}
        if peers:
            signals["port.up~peers"] = True
        rows.append(observe("infiniband", f"port/{name}/1", signals))
    return machine(*rows)


def expected_ports(
    latest: LatestReadings, platform: Platform | None = None, were_up: Mapping[str, float] | None = None
) -> dict[str, str]:
    """Who expects each port that is expected."""
    result = derived(latest, *port_derivations(platform, were_up or {}))
    return {
        target.split("/")[1]: str(item["port.expected_by"])
        for target, item in result.items()
        if "port.expected" in item
    }


def test_port_that_is_up_is_expected_and_port_without_a_cable_is_not() -> None:
    assert expected_ports(node(1, 1)) == {"p0": "itself"}


def test_a_port_that_was_up_is_expected() -> None:
    assert expected_ports(node(1, 2), were_up={"port/p1/1": 1.0, "port/p2/1": 0.0}) == {
        "p0": "itself",
        "p1": "inventory",
    }


def test_port_with_peers_that_are_up_is_expected() -> None:
    assert expected_ports(node(0, 1, peers=True)) == {"p0": "peers"}


def test_all_fabric_ports_are_expected_if_fewer_than_the_platform_count_are_up() -> None:
    assert expected_ports(node(3, 1), EIGHT) == dict.fromkeys(("p0", "p1", "p2", "p3"), "platform")


def test_expected_ports_do_not_exceed_the_platform_count() -> None:
    assert expected_ports(node(4, 2), EIGHT) == dict.fromkeys(("p0", "p1", "p2", "p3"), "platform")


def test_port_of_another_adapter_model_is_not_in_the_fabric() -> None:
    assert expected_ports(node(3, 1, spare=2), EIGHT).keys() == {"p0", "p1", "p2", "p3"}


def test_port_of_another_link_layer_is_not_in_the_fabric() -> None:
    assert fabric_ports(EIGHT, node(2, layer="Ethernet")) == set()


def wrong_layers(*layers: str, platform: Platform | None = EIGHT) -> list[Scalar | None]:
    """Whether each port of one board, up with this link layer, should have another one."""
    ports = [
        observe("infiniband", f"port/p{at}/1", {"port.up": True, "port.link_layer": layer, "port.board": "p"})
        for at, layer in enumerate(layers)
    ]
    result = derived(machine(*ports), *port_derivations(platform, {}))
    return [result.get(f"port/p{at}/1", {}).get("port.wrong_layer") for at in range(len(layers))]


def test_port_of_another_link_layer_is_wrong_where_the_fabric_misses_one() -> None:
    assert wrong_layers("InfiniBand", "InfiniBand", "InfiniBand", "Ethernet") == [False, False, False, True]
    assert wrong_layers(*["InfiniBand"] * 4, "Ethernet") == [False] * 5
    assert wrong_layers("InfiniBand", "Ethernet", platform=None) == [None] * 2


def test_platform_can_list_its_fabric_ports_by_device_name() -> None:
    platform = expecting(port_devices=("p1", "p9"))
    assert fabric_ports(platform, node(1, 1)) == {"port/p1/1"}
    assert expected_ports(node(0, 2), platform) == {"p1": "platform"}


@pytest.mark.parametrize(("platform", "in_fabric"), [(None, None), (EIGHT, True)])
def test_fabric_membership_of_a_port_is_known_from_the_platform(
    platform: Platform | None, in_fabric: bool | None
) -> None:
    result = derived(node(4), *port_derivations(platform, {}))
    assert {item.get("port.in_fabric") for item in result.values()} == {in_fabric}


def test_port_is_expected_from_the_inventory_if_the_fabric_ports_are_unread() -> None:
    dark = Observation("infiniband", "port/p1/1", unreadable={"port.device_type": "refused"})
    down = observe("infiniband", "port/p0/1", {"port.up": False, "port.link_layer": "InfiniBand"})
    latest = machine(down, dark)
    assert expected_ports(latest, EIGHT, were_up={"port/p0/1": 1.0}) == {"p0": "inventory"}
    latest = machine(down, dark)
    assert unread(latest, *port_derivations(EIGHT, {}))["port/p0/1"].keys() == {
        "port.expected",
        "port.expected_by",
        "port.in_fabric",
    }


def test_fabric_count_is_unread_if_the_infiniband_class_lists_fewer_devices_than_the_bus() -> None:
    adapter = observe("pci", "pci/0000:9c:00.0", {"pci.rdma_devices": 1})
    latest = machine(adapter, empty=("infiniband",))
    assert unread(latest, fabric_count_derivation(EIGHT))["node"].keys() == {"port.fabric_count"}
    bus = observe("pci", "node", {"rdma.function_count": 1})
    latest = machine(bus, observe("pci", "pci/0000:9c:00.0", {"pci.rdma_devices": 0}), empty=("infiniband",))
    assert derived(latest, fabric_count_derivation(EIGHT))["node"] == {"port.fabric_count": 0}


def test_fabric_count_is_unread_if_no_hardware_is_visible() -> None:
    assert unread(machine(empty=("infiniband", "pci")), fabric_count_derivation(EIGHT))["node"].keys() == {
        "port.fabric_count"
    }


PORT = "port/mlx5_0/1"
EFA = "port/rdmap79s0/1"
BITS = {"port.link_downed": 8, "port.symbol_errors": 16}


@pytest.mark.parametrize(
    ("downed", "symbols", "ended"),
    [
        (254, 0, "none"),
        (255, 0, "link_downed"),
        (255, 65535, "link_downed, symbol_errors"),
        (0, None, "none"),
    ],
)
def test_saturated_counters_are_listed(downed: int, symbols: int | None, ended: str) -> None:
    signals = {"port.link_downed": downed} | ({} if symbols is None else {"port.symbol_errors": symbols})
    latest = machine(observe("infiniband", PORT, signals))
    assert derived(latest, *port_counter_derivations(BITS, {})) == {
        PORT: {"port.saturated": ended, "port.saturated_alike": "none"}
    }


def test_port_without_saturating_counters_has_no_signal() -> None:
    assert (
        derived(
            machine(observe("infiniband", EFA, {"efa.keep_alive_rcvd": 1})),
            *port_counter_derivations(BITS, {}),
        )
        == {}
    )


def test_a_counter_that_could_not_be_read_may_be_at_its_maximum() -> None:
    latest = machine(
        Observation(
            "infiniband", PORT, signals={"port.link_downed": 3}, unreadable={"port.symbol_errors": "refused"}
        )
    )
    assert unread(latest, *port_counter_derivations(BITS, {})) == {
        PORT: {"port.saturated": "refused", "port.saturated_alike": "refused"}
    }


def ports(*values: int, firmware: tuple[str, ...] = ("28.39", "28.39", "28.39")) -> list[Observation]:
    return [
        observe(
            "infiniband",
            f"port/mlx5_{at}/1",
            {"port.link_downed": value, **({"port.firmware": version} if version else {})},
        )
        for at, (value, version) in enumerate(zip(values, firmware, strict=True))
    ]


@pytest.mark.parametrize("firmware", [("28.39", "28.39", "28.39"), ("", "28.39", "28.39"), ("", "28.39", "")])
def test_counter_saturated_on_every_port_of_a_firmware_version_is_dropped(firmware: tuple[str, ...]) -> None:
    latest = machine(*ports(255, 255, 255, firmware=firmware))
    alike = {"port.saturated": "none", "port.saturated_alike": "link_downed"}
    assert derived(latest, *port_counter_derivations(BITS, {})) == {
        f"port/mlx5_{at}/1": alike for at in range(3)
    }
    [reading] = readings(*ports(255, 255, 255, firmware=firmware))
    assert all(
        "port.link_downed" not in observation.signals
        for observation in drop_unused_counters(reading, latest.derived).observations
    )


def test_counter_saturated_on_some_ports_of_a_firmware_version_is_reported() -> None:
    for values, firmware in (
        ((255, 255, 3), ("28.39", "28.39", "28.39")),
        ((255, 3, 3), ("28.39", "28.40", "28.40")),
        ((255, 255, 255), ("28.39", "28.40", "28.41")),
        ((255, 255, 3), ("", "28.39", "")),
    ):
        rows = ports(*values, firmware=firmware)
        latest = machine(*rows)
        assert derived(latest, *port_counter_derivations(BITS, {}))["port/mlx5_0/1"] == {
            "port.saturated": "link_downed",
            "port.saturated_alike": "none",
        }
        [reading] = readings(*rows)
        assert drop_unused_counters(reading, latest.derived) is reading


def test_unchanged_heartbeat_counter_increases_the_silent_time() -> None:
    before: dict[str, tuple[float, float]] = {}
    silent = []
    for at, count in ((0, 7), (10, 7), (20, 8), (30, 8), (40, 8), (50, 0)):
        latest = machine(observe("infiniband", EFA, {"efa.keep_alive_rcvd": count}), at=float(at))
        before = track_heartbeats(latest, before)
        silent.append(derived(latest, *port_counter_derivations({}, before))[EFA]["efa.silence"])
    assert silent == [0, 10, 0, 10, 20, 0]


def test_removed_device_has_no_silent_time() -> None:
    before = track_heartbeats(machine(observe("infiniband", EFA, {"efa.keep_alive_rcvd": 7})), {})
    assert track_heartbeats(machine(observe("infiniband", PORT, {"port.up": True})), before) == {}
