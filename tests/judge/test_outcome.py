from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.judge.outcome import FALSE, NOT_APPLICABLE, TRUE, UNKNOWN, all_of, any_of

outcomes = st.sampled_from([NOT_APPLICABLE, FALSE, UNKNOWN, TRUE])
some = st.lists(outcomes, min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        ((), NOT_APPLICABLE),
        ((TRUE, FALSE, UNKNOWN, NOT_APPLICABLE), TRUE),
        ((FALSE, UNKNOWN), UNKNOWN),
        ((FALSE, NOT_APPLICABLE), FALSE),
    ],
)
def test_any(parts: tuple[int, ...], together: int) -> None:
    assert any_of(parts) == together


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        ((), NOT_APPLICABLE),
        ((TRUE, TRUE), TRUE),
        ((TRUE, UNKNOWN), UNKNOWN),
        ((TRUE, UNKNOWN, NOT_APPLICABLE), NOT_APPLICABLE),
        ((TRUE, UNKNOWN, NOT_APPLICABLE, FALSE), FALSE),
    ],
)
def test_all(parts: tuple[int, ...], together: int) -> None:
    assert all_of(parts) == together


@given(parts=some, more=some)
def test_grouping_and_order_change_nothing(parts: list[int], more: list[int]) -> None:
    for combine in (any_of, all_of):
        whole = combine(parts + more)
        assert combine([combine(parts), combine(more)]) == whole
        assert combine(reversed(parts + more)) == whole
        assert combine(parts + parts) == combine(parts)


@given(parts=some)
def test_what_is_unknown_never_makes_true_or_false(parts: list[int]) -> None:
    """To learn what was unknown can turn an unknown outcome; a known one stands."""
    for combine in (any_of, all_of):
        before = combine(parts)
        learnt = {combine([truth if one == UNKNOWN else one for one in parts]) for truth in (TRUE, FALSE)}
        if before in {TRUE, FALSE}:
            assert learnt == {before}
