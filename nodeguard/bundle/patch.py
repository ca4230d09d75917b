"""What a frame says of a map: the entries that changed, and None for those that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def patched(before: Mapping[str, Value], changes: Mapping[str, Value | None]) -> dict[str, Value]:
    """A map after some changes, by key; None takes an entry away, and may name one that is not there."""
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def changes_between(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Value | None]:
    """The changes that make `after` out of `before`: patched(before, …) == after."""
    gone: dict[str, Value | None] = dict.fromkeys(key for key in before if key not in after)
    return gone | {key: value for key, value in after.items() if key not in before or before[key] != value}
