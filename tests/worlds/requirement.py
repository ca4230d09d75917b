"""The error of a broken invariant, and the function that raises it."""

from __future__ import annotations


class BrokenInvariantError(AssertionError):
    """An invariant does not hold. The message has the invariant, and what breaks it."""


def require(condition: object, invariant: str, *details: object) -> None:
    """Raise BrokenInvariantError unless a condition holds."""
    if not condition:
        raise BrokenInvariantError(": ".join([invariant, *(f"{detail}" for detail in details)]))
