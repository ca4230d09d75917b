from __future__ import annotations

import pytest

from nodeguard.derive.ports import drop_unused_counters, port_counter_derivations, track_heartbeats
from nodeguard.model.observation import Observation
from tests.derive.look import derived, machine, readings, seen, unread

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
def test_counters_that_stand_at_their_end_are_named(downed: int, symbols: int | None, ended: str) -> None:
    signals = {"port.link_downed": downed} | ({} if symbols is None else {"port.symbol_errors": symbols})
    look = machine(seen("infiniband", PORT, signals))
    assert derived(look, *port_counter_derivations(BITS, {})) == {
        PORT: {"port.saturated": ended, "port.saturated_alike": "none"}
    }


def test_a_port_without_such_counters_says_nothing() -> None:
    assert (
        derived(
            machine(seen("infiniband", EFA, {"efa.keep_alive_rcvd": 1})), *port_counter_derivations(BITS, {})
        )
        == {}
    )


def test_a_counter_that_could_not_be_read_may_be_at_its_maximum() -> None:
    look = machine(
        Observation(
            "infiniband", PORT, signals={"port.link_downed": 3}, unreadable={"port.symbol_errors": "refused"}
        )
    )
    assert unread(look, *port_counter_derivations(BITS, {})) == {
        PORT: {"port.saturated": "refused", "port.saturated_alike": "refused"}
    }


def ports(*values: int, firmware: tuple[str, ...] = ("28.39", "28.39", "28.39")) -> list[Observation]:
    return [
        seen("infiniband", f"port/mlx5_{at}/1", {"port.link_downed": value, "port.firmware": version})
        for at, (value, version) in enumerate(zip(values, firmware, strict=True))
    ]


def test_a_counter_that_each_port_of_a_firmware_has_at_its_maximum_is_not_counted() -> None:
    look = machine(*ports(255, 255, 255))
    alike = {"port.saturated": "none", "port.saturated_alike": "link_downed"}
    assert derived(look, *port_counter_derivations(BITS, {})) == {
        f"port/mlx5_{at}/1": alike for at in range(3)
    }
    [reading] = readings(*ports(255, 255, 255))
    assert all(
        "port.link_downed" not in observation.signals
        for observation in drop_unused_counters(reading, look.derived).observations
    )


def test_a_port_that_differs_from_those_of_its_firmware_keeps_its_warning() -> None:
    for values, firmware in (
        ((255, 255, 3), ("28.39", "28.39", "28.39")),
        ((255, 3, 3), ("28.39", "28.40", "28.40")),
        ((255, 255, 255), ("28.39", "28.40", "28.41")),
    ):
        rows = ports(*values, firmware=firmware)
        look = machine(*rows)
        assert derived(look, *port_counter_derivations(BITS, {}))["port/mlx5_0/1"] == {
            "port.saturated": "link_downed",
            "port.saturated_alike": "none",
        }
        [reading] = readings(*rows)
        assert drop_unused_counters(reading, look.derived) is reading


def test_a_heart_that_stands_still_is_silent_for_longer_and_longer() -> None:
    before: dict[str, tuple[float, float]] = {}
    silent = []
    for at, count in ((0, 7), (10, 7), (20, 8), (30, 8), (40, 8), (50, 0)):
        look = machine(seen("infiniband", EFA, {"efa.keep_alive_rcvd": count}), at=float(at))
        before = track_heartbeats(look, before)
        silent.append(derived(look, *port_counter_derivations({}, before))[EFA]["efa.silence"])
    assert silent == [0, 10, 0, 10, 20, 0]


def test_a_device_that_is_gone_is_not_silent() -> None:
    before = track_heartbeats(machine(seen("infiniband", EFA, {"efa.keep_alive_rcvd": 7})), {})
    assert track_heartbeats(machine(seen("infiniband", PORT, {"port.up": True})), before) == {}
