"""Paths of fields in a configuration file: the keys and indices that lead to a value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import EllipsisType

# Keys and indices, outermost first; an ellipsis stands for a key that msgspec does not report.
FieldPath = tuple["str | int | EllipsisType", ...]

_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def parse_field_path(text: str) -> FieldPath:
    """Return the path that msgspec's notation describes: `$.rows[3].code` → ("rows", 3, "code")."""
    return tuple(... if index == "..." else name or int(index) for name, index in _STEP.findall(text))


def field_name(path: FieldPath) -> str:
    """Return a field's name for messages: its last key and the indices after it; empty without a key."""
    name = ""
    for step in path:
        if isinstance(step, str):
            name = step
        elif name:
            name += "[...]" if step is ... else f"[{step}]"
    return name
