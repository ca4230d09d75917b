"""Texts of other programs and people, without the characters that a terminal would interpret. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# An escape of JSON for a control character, among others.
_ESCAPE = re.compile(rb"\\[bfnrtu]")


def printable(text: str) -> str:
    """Return a text without control characters: reports repeat the names that processes give themselves."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def escape_unprintable(text: str) -> str:
    """Return a text with the JSON escapes of the characters that a terminal would interpret."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _json_escape(letter) for letter in text)


def _json_escape(letter: str) -> str:
    """Return the JSON escape of a character: one UTF-16 unit, or two."""
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def printable_json(data: bytes) -> bytes:
    """Return JSON with printable strings only. Raises msgspec.DecodeError and UnicodeDecodeError."""
    if _ESCAPE.search(data) is None and data.decode().isprintable():
        return data
    return msgspec.json.encode(_printable_strings(msgspec.json.decode(data)))


def _printable_strings(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(name): _printable_strings(field) for name, field in value.items()}
    if isinstance(value, list):
        return [_printable_strings(element) for element in value]
    return value
