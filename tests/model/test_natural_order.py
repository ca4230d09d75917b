"""The order of names with numbers."""

from __future__ import annotations

import pytest

from nodeguard.model.natural_order import natural_order


@pytest.mark.parametrize(
    ("before", "after"),
    [("r2", "r10"), ("r2", "r2b"), ("", "r1"), ("a/r9/n1", "a/r10/n0"), ("1", "r1"), ("²", "³")],
)
def test_numbers_are_compared_as_numbers(before: str, after: str) -> None:
    assert natural_order(before) < natural_order(after)


def test_a_long_number_has_an_order() -> None:
    assert natural_order("1" * 5000) < natural_order("2" * 5000)
