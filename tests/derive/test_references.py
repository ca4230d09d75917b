from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.references import (
    BestReadings,
    add_inventory_references,
    add_peer_references,
    best_values,
    update_inventory,
)
from nodeguard.model.observation import Component, Observation
from nodeguard.model.signal import Scalar
from tests.derive.look import machine, seen

GPU = "gpu/0000:01:00"


def of_peers(look: LatestReadings, wanted: Mapping[str, str]) -> dict[str, dict[str, Scalar]]:
    add_peer_references(look, wanted)
    return look.derived


def bests(
    look: LatestReadings, before: Mapping[str, BestReadings], now: Mapping[str, BestReadings]
) -> dict[str, dict[str, Scalar]]:
    add_inventory_references(look, before, now)
    return look.derived


def peer_values(kind: str, *values: Scalar | None) -> list[Scalar | None]:
    """Return the peer value of each GPU."""
    slots = [f"gpu/0000:{bus:02x}:00" for bus in range(len(values))]
    rows = [
        seen("nvml", slot, {} if value is None else {"x": value})
        for slot, value in zip(slots, values, strict=True)
    ]
    result = of_peers(machine(*rows), {"x": kind})
    return [result.get(slot, {}).get("x~peers") for slot in slots]


@pytest.mark.parametrize(
    ("values", "peer"),
    [
        ((18, 18, 18, 17), [18, 18, 18, 18]),
        ((18, 18, 17, 17), [None, None, None, None]),
        ((17, 17, 18, 18), [None, None, None, None]),
        ((18, 18, 17, 16), [None, None, 18, 18]),
        ((18, 18, 17), [None, None, 18]),
        ((18, 17), [None, None]),
        ((18, 18, None, 17), [None, None, None, 18]),
        ((True, True, True, False), [True, True, True, True]),
    ],
)
def test_peer_state_is_shared_by_more_than_half_of_the_peers(
    values: tuple[Scalar | None, ...], peer: list[Scalar | None]
) -> None:
    assert peer_values("state", *values) == peer


@pytest.mark.parametrize(
    ("values", "peer"), [((30.0, 31.0, 32.0, 5.0), [31, 30, 30, 31]), ((30.0, 31.0, 5.0), [None] * 3)]
)
def test_peer_gauge_is_the_median_of_at_least_three_peers(
    values: tuple[Scalar, ...], peer: list[Scalar | None]
) -> None:
    assert peer_values("gauge", *values) == peer


def test_ports_of_another_make_are_no_peers() -> None:
    rows = [
        seen("infiniband", f"port/mlx5_{n}/1", {"port.board": "AB"[n % 2], "port.rate": 400 - n % 2})
        for n in range(6)
    ]
    result = of_peers(machine(*rows), {"port.rate": "state"})
    assert [result[slot]["port.rate~peers"] for slot in sorted(result)] == [400, 399] * 3
    assert of_peers(machine(*rows[:4]), {"port.rate": "state"}) == {}


def test_target_of_another_make_is_no_peer() -> None:
    screen = seen("pci", "gpu/0000:ff:00", {"pci.class": "0300", "gpu.name": "DGX Display", "x": 4})
    models = ["A100"] * 3 + ["T4"]
    rows = [
        seen("nvml", f"gpu/0000:0{at}:00", {"pci.class": "0302", "gpu.name": name, "x": len(name)})
        for at, name in enumerate(models)
    ]
    result = of_peers(machine(*rows, screen), {"x": "state"})
    assert sorted(slot[-5:-3] for slot in result) == ["00", "01", "02"]
    named = of_peers(machine(*rows, screen), {"gpu.name": "state"})
    assert [item["gpu.name~peers"] for item in named.values()] == ["A100"] * 4


X = frozenset({"x"})


def gpu(value: Scalar | None, uuid: str = "") -> LatestReadings:
    part = Component(uuid) if uuid else None
    return machine(Observation("nvml", GPU, signals={} if value is None else {"x": value}, component=part))


@given(values=st.lists(st.none() | st.integers() | st.booleans() | st.text(), min_size=1, max_size=5))
def test_best_reading_never_decreases(values: list[Scalar | None]) -> None:
    before: dict[str, BestReadings] = {}
    for value in values:
        after = update_inventory(gpu(value), X, before)
        assert all(
            after[slot] == row or after[slot].values["x"] > row.values["x"] for slot, row in before.items()
        )
        assert update_inventory(gpu(value), X, after) == after
        before = after
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    assert before == ({GPU: BestReadings("", {"x": max(numbers)})} if numbers else {})


def test_reading_is_compared_with_the_inventory_before_this_round() -> None:
    look = gpu(3)
    before = {GPU: BestReadings("", {"x": 4.0})}
    assert bests(gpu(3), before, update_inventory(look, X, before)) == {GPU: {"x~inventory": 4.0}}
    assert bests(gpu(3), {}, update_inventory(look, X, {})) == {GPU: {"x~inventory": 3.0}}
    assert best_values(look, before, "x") == {GPU: 4.0}


def test_new_component_is_not_compared_with_its_predecessor() -> None:
    before = update_inventory(gpu(4, "old"), X, {})
    assert update_inventory(gpu(None), X, before) == before
    after = update_inventory(gpu(3, "new"), X, before)
    assert after == {GPU: BestReadings("new", {"x": 3.0})}
    assert bests(gpu(3, "new"), before, after) == {GPU: {"x~inventory": 3.0}}
    assert best_values(gpu(3, "new"), before, "x") == {}


def test_unread_peer_agrees_with_no_other() -> None:
    rows = [seen("nvml", f"gpu/0000:0{at}:00", {"x": 18 if at else 17}) for at in range(4)]
    dark = [Observation("nvml", f"gpu/0000:1{at}:00", unreadable={"x": "refused"}) for at in range(3)]
    assert of_peers(machine(*rows), {"x": "state"})["gpu/0000:00:00"] == {"x~peers": 18}
    assert of_peers(machine(*rows, *dark), {"x": "state"}) == {}


@pytest.mark.parametrize(
    "dark",
    [
        Observation("nvml", "node", unlisted={"gpu": "a GPU without a name"}),
        Observation("nvml", GPU, "hung", detail="no answer"),
    ],
)
def test_incomplete_list_of_gpus_does_not_update_the_inventory(dark: Observation) -> None:
    look = machine(seen("nvml", GPU, {"x": 9}), dark)
    assert update_inventory(look, X, {GPU: BestReadings("", {"x": 8.0})}) == {
        GPU: BestReadings("", {"x": 8.0})
    }
    assert update_inventory(look, X, {}) == {}


def test_mounts_that_come_and_go_do_not_fill_the_inventory() -> None:
    before: dict[str, BestReadings] = {}
    for at in range(3000):
        before = update_inventory(machine(seen("filesystem", f"fs:/m{at}", {"x": 1})), X, before)
    assert len(before) <= 2048
    assert "fs:/m2999" in before
