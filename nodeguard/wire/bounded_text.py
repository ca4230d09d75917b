"""Names and texts within the limits of a message: a kernel log can contain any bytes. Pure."""

from __future__ import annotations

_TEXT_LENGTH = 512
_NAME_LENGTH = 200


def bounded_name(value: object) -> str:
    """Return a name, cut to a length that every reader accepts."""
    return _cut(value, _NAME_LENGTH)


def bounded_text(value: object) -> str:
    """Return a sentence, cut to a length that every reader accepts."""
    return _cut(value, _TEXT_LENGTH)


def _cut(value: object, length: int) -> str:
    """Return valid UTF-8 that ends in an ellipsis if it was cut."""
    whole = str(value)
    cut = whole if len(whole) <= length else whole[: length - 1] + "…"
    return cut.encode("utf-8", "replace").decode()
