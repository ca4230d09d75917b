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
from tests.derive.readings import machine, observe

GPU = "gpu/0000:01:00"


def peer_references(latest: LatestReadings, wanted: Mapping[str, str]) -> dict[str, dict[str, Scalar]]:
    add_peer_references(latest, wanted)
    return latest.derived


def inventory_references(
    latest: LatestReadings, before: Mapping[str, BestReadings], now: Mapping[str, BestReadings]
) -> dict[str, dict[str, Scalar]]:
    add_inventory_references(latest, before, now)
    return latest.derived


def peer_values(kind: str, *values: Scalar | None) -> list[Scalar | None]:
    """Return the peer value of each GPU."""
    targets = [f"gpu/0000:{bus:02x}:00" for bus in range(len(values))]
    rows = [
        observe("nvml", target, {} if value is None else {"x": value})
        for target, value in zip(targets, values, strict=True)
    ]
    result = peer_references(machine(*rows), {"x": kind})
    return [result.get(target, {}).get("x~peers") for target in targets]


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


def test_ports_of_another_adapter_model_are_no_peers() -> None:
    rows = [
        observe("infiniband", f"port/mlx5_{n}/1", {"port.board": "AB"[n % 2], "port.rate": 400 - n % 2})
        for n in range(6)
    ]
    result = peer_references(machine(*rows), {"port.rate": "state"})
    assert [result[target]["port.rate~peers"] for target in sorted(result)] == [400, 399] * 3
    assert peer_references(machine(*rows[:4]), {"port.rate": "state"}) == {}


def test_target_of_another_model_is_no_peer() -> None:
    screen = observe("pci", "gpu/0000:ff:00", {"pci.class": "0300", "gpu.name": "DGX Display", "x": 4})
    models = ["A100"] * 3 + ["T4"]
    rows = [
        observe("nvml", f"gpu/0000:0{at}:00", {"pci.class": "0302", "gpu.name": name, "x": len(name)})
        for at, name in enumerate(models)
    ]
    result = peer_references(machine(*rows, screen), {"x": "state"})
    assert sorted(target[-5:-3] for target in result) == ["00", "01", "02"]
    named = peer_references(machine(*rows, screen), {"gpu.name": "state"})
    assert [item["gpu.name~peers"] for item in named.values()] == ["A100"] * 4


X = frozenset({"x"})


def gpu_reading(value: Scalar | None, uuid: str = "") -> LatestReadings:
    part = Component(uuid) if uuid else None
    return machine(Observation("nvml", GPU, signals={} if value is None else {"x": value}, component=part))


@given(values=st.lists(st.none() | st.integers() | st.booleans() | st.text(), min_size=1, max_size=5))
def test_best_reading_never_decreases(values: list[Scalar | None]) -> None:
    before: dict[str, BestReadings] = {}
    for value in values:
        after = update_inventory(gpu_reading(value), X, before)
        assert all(
            after[target] == row or after[target].values["x"] > row.values["x"]
            for target, row in before.items()
        )
        assert update_inventory(gpu_reading(value), X, after) == after
        before = after
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    assert before == ({GPU: BestReadings("", {"x": max(numbers)})} if numbers else {})


def test_reading_is_compared_with_the_inventory_before_this_round() -> None:
    latest = gpu_reading(3)
    before = {GPU: BestReadings("", {"x": 4.0})}
    assert inventory_references(gpu_reading(3), before, update_inventory(latest, X, before)) == {
        GPU: {"x~inventory": 4.0}
    }
    assert inventory_references(gpu_reading(3), {}, update_inventory(latest, X, {})) == {
        GPU: {"x~inventory": 3.0}
    }
    assert best_values(latest, before, "x") == {GPU: 4.0}


def test_new_component_is_not_compared_with_its_predecessor() -> None:
    before = update_inventory(gpu_reading(4, "old"), X, {})
    assert update_inventory(gpu_reading(None), X, before) == before
    after = update_inventory(gpu_reading(3, "new"), X, before)
    assert after == {GPU: BestReadings("new", {"x": 3.0})}
    assert inventory_references(gpu_reading(3, "new"), before, after) == {GPU: {"x~inventory": 3.0}}
    assert best_values(gpu_reading(3, "new"), before, "x") == {}


def test_unread_peer_agrees_with_no_other() -> None:
    rows = [observe("nvml", f"gpu/0000:0{at}:00", {"x": 18 if at else 17}) for at in range(4)]
    dark = [Observation("nvml", f"gpu/0000:1{at}:00", unreadable={"x": "refused"}) for at in range(3)]
    assert peer_references(machine(*rows), {"x": "state"})["gpu/0000:00:00"] == {"x~peers": 18}
    assert peer_references(machine(*rows, *dark), {"x": "state"}) == {}


@pytest.mark.parametrize(
    "dark",
    [
        Observation("nvml", "node", unlisted={"gpu": "a GPU without a name"}),
        Observation("nvml", GPU, "hung", detail="no answer"),
    ],
)
def test_incomplete_list_of_gpus_does_not_update_the_inventory(dark: Observation) -> None:
    latest = machine(observe("nvml", GPU, {"x": 9}), dark)
    assert update_inventory(latest, X, {GPU: BestReadings("", {"x": 8.0})}) == {
        GPU: BestReadings("", {"x": 8.0})
    }
    assert update_inventory(latest, X, {}) == {}


def test_number_of_removed_mounts_in_the_inventory_is_limited() -> None:
    before: dict[str, BestReadings] = {}
    for at in range(3000):
        before = update_inventory(machine(observe("filesystem", f"fs:/m{at}", {"x": 1})), X, before)
    assert len(before) <= 2048
    assert "fs:/m2999" in before
