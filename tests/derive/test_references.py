from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.derive.references import best, peers
from nodeguard.model.signal import Scalar
from tests.derive.look import machine, seen


def told(kind: str, *values: Scalar | None, makes: str = "") -> list[Scalar | None]:
    """What each GPU's peers read. makes: a letter for each GPU's model, one for all where it is empty."""
    slots = [f"gpu/0000:{bus:02x}:00" for bus in range(len(values))]
    rows = [
        seen("nvml", slot, {} if value is None else {"x": value}, part=make)
        for slot, value, make in zip(slots, values, makes or "A" * len(values), strict=True)
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


def test_only_slots_of_one_make_are_peers() -> None:
    assert told("state", 18, 18, 18, 12, 12, 12, makes="AAABBB") == [18, 18, 18, 12, 12, 12]
    assert told("state", 18, 18, 12, 12, makes="AABB") == [None] * 4


@given(value=st.none() | st.integers() | st.booleans() | st.text(), known=st.none() | st.floats(0, 100))
def test_the_best_never_gets_worse(value: Scalar | None, known: float | None) -> None:
    after = best(known, value)
    assert known is None or (after is not None and after >= known)
    assert best(after, value) == after
