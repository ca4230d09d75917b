from __future__ import annotations

import pytest

from nodeguard.derive.counters import saturated, silence, still
from tests.derive.look import machine, seen

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
    assert dict(saturated(machine(seen("infiniband", PORT, signals)), BITS)) == {
        PORT: {"port.saturated": ended}
    }


def test_a_port_without_such_counters_says_nothing() -> None:
    assert dict(saturated(machine(seen("infiniband", EFA, {"efa.keep_alive_rcvd": 1})), BITS)) == {}


def test_a_heart_that_stands_still_is_silent_for_longer_and_longer() -> None:
    known: dict[str, tuple[float, float]] = {}
    silent = []
    for at, count in ((0, 7), (10, 7), (20, 8), (30, 8), (40, 8), (50, 0)):
        look = machine(seen("infiniband", EFA, {"efa.keep_alive_rcvd": count}), at=float(at))
        known = still(look, known)
        silent.append(dict(silence(look, known))[EFA]["efa.silence"])
    assert silent == [0, 10, 0, 10, 20, 0]


def test_a_device_that_is_gone_is_not_silent() -> None:
    known = still(machine(seen("infiniband", EFA, {"efa.keep_alive_rcvd": 7})), {})
    assert still(machine(seen("infiniband", PORT, {"port.up": True})), known) == {}
