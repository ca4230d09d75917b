"""Names and texts as a message may hold them: a kernel log may hold any bytes, of any number. Pure."""

from __future__ import annotations

_TEXT = 512
_NAME = 200


def bounded_name(value: object) -> str:
    """A name, cut to a length that every reader accepts."""
    return _clean(value, _NAME)


def bounded_text(value: object) -> str:
    """A sentence, cut to a length that every reader accepts."""
    return _clean(value, _TEXT)


def _clean(value: object, most: int) -> str:
    """Without what UTF-8 cannot carry; it ends in an ellipsis where it was cut."""
    whole = str(value)
    cut = whole if len(whole) <= most else whole[: most - 1] + "…"
    return cut.encode("utf-8", "replace").decode()
