from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.derive.references import before, inventory, peers
from nodeguard.model.signal import Scalar
from tests.derive.look import machine, seen

GPU = "gpu/0000:01:00"


def told(kind: str, *values: Scalar | None) -> list[Scalar | None]:
    """What each GPU's peers read."""
    slots = [f"gpu/0000:{bus:02x}:00" for bus in range(len(values))]
    rows = [
        seen("nvml", slot, {} if value is None else {"x": value})
        for slot, value in zip(slots, values, strict=True)
    ]
    result = dict(peers(machine(*rows), {"x": kind}))
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
def test_a_state_is_what_more_than_half_of_the_others_share(
    values: tuple[Scalar | None, ...], peer: list[Scalar | None]
) -> None:
    assert told("state", *values) == peer


@pytest.mark.parametrize(
    ("values", "peer"), [((30.0, 31.0, 32.0, 5.0), [31, 30, 30, 31]), ((30.0, 31.0, 5.0), [None] * 3)]
)
def test_a_gauge_is_the_median_of_at_least_three_others(
    values: tuple[Scalar, ...], peer: list[Scalar | None]
) -> None:
    assert told("gauge", *values) == peer


def test_ports_of_another_make_are_no_peers() -> None:
    rows = [
        seen("infiniband", f"port/mlx5_{n}/1", {"port.board": "AB"[n % 2], "port.rate": 400 - n % 2})
        for n in range(6)
    ]
    result = dict(peers(machine(*rows), {"port.rate": "state"}))
    assert [one["port.rate~peers"] for one in result.values()] == [400] * 3 + [399] * 3
    assert dict(peers(machine(*rows[:4]), {"port.rate": "state"})) == {}


def test_what_is_of_another_make_is_no_peer() -> None:
    screen = seen("pci", "gpu/0000:ff:00", {"pci.class": "0300", "gpu.name": "DGX Display", "x": 4})
    models = ["A100"] * 3 + ["T4"]
    rows = [
        seen("nvml", f"gpu/0000:0{at}:00", {"pci.class": "0302", "gpu.name": name, "x": len(name)})
        for at, name in enumerate(models)
    ]
    result = dict(peers(machine(*rows, screen), {"x": "state"}))
    assert [slot[-5:-3] for slot in result] == ["00", "01", "02"]
    named = dict(peers(machine(*rows, screen), {"gpu.name": "state"}))
    assert [one["gpu.name~peers"] for one in named.values()] == ["A100"] * 4


@given(values=st.lists(st.none() | st.integers() | st.booleans() | st.text(), min_size=1, max_size=5))
def test_the_best_never_gets_worse(values: list[Scalar | None]) -> None:
    known: dict[str, dict[str, float]] = {}
    for value in values:
        look = machine(seen("nvml", GPU, {} if value is None else {"x": value}))
        after = inventory(look, frozenset({"x"}), known)
        assert known.items() <= after.items() or after[GPU]["x"] > known[GPU]["x"]
        assert inventory(look, frozenset({"x"}), after) == after
        known = after
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    assert known == ({GPU: {"x": max(numbers)}} if numbers else {})


def test_a_slot_is_held_against_what_it_was_before_this_look() -> None:
    look = machine(seen("nvml", GPU, {"x": 3}))
    known = {GPU: {"x": 4.0}}
    assert dict(before(look, known, inventory(look, frozenset({"x"}), known))) == {GPU: {"x~inventory": 4.0}}
    assert dict(before(look, {}, inventory(look, frozenset({"x"}), {}))) == {GPU: {"x~inventory": 3.0}}
