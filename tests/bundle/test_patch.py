from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.overlay import apply_changes, changes_between

maps = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@settings(deadline=None)
@given(maps, maps)
def test_the_changes_between_two_maps_make_one_of_the_other(
    before: dict[str, int], after: dict[str, int]
) -> None:
    assert apply_changes(before, changes_between(before, after)) == after


def test_none_takes_away_and_may_name_what_is_not_there() -> None:
    assert apply_changes({"a": 1, "b": 2}, {"a": None, "c": None, "d": 3}) == {"b": 2, "d": 3}
    assert changes_between({"a": 1, "b": 2}, {"b": 3}) == {"a": None, "b": 3}
