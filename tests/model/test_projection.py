"""nodeguard.model.projection."""

from __future__ import annotations

import pytest
from msgspec import Struct

from nodeguard.model.projection import project


class _Row(Struct):
    name: str
    size: str
    comment: str = ""


class _Model(Struct):
    name: str
    size: int
    color: str = "red"


def test_fields_of_both_are_copied_and_the_others_are_given_or_have_their_default() -> None:
    assert project(_Model, _Row("a", "1", "text"), size=1) == _Model("a", 1, "red")


def test_a_required_field_that_is_in_neither_is_an_error() -> None:
    with pytest.raises(TypeError, match="size"):
        project(_Model, object(), name="a")
