"""The order of names with numbers, for lists that people read. Pure."""

from __future__ import annotations

import re

# Python converts no more than 4300 digits to a number: a longer number is several parts.
_DIGITS = re.compile(r"([0-9]{1,18})")

# A part of a name: whether it is text, its number, and its text.
NaturalOrder = tuple[tuple[bool, int, str], ...]


def natural_order(name: str) -> NaturalOrder:
    """Return a sort key by which r2 comes before r10."""
    parts = (part for part in _DIGITS.split(name) if part)
    return tuple((False, int(part), "") if part[0] in "0123456789" else (True, 0, part) for part in parts)
