"""Styled lines: the form of a view before the terminal wraps it, or the status page makes it HTML. Pure."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.judge.formatting import format_duration


class StyledText(Struct, frozen=True):
    """A text of one style, empty for none."""

    text: str
    style: str = ""


class StyledLine(Struct, frozen=True):
    """A line: a head that is never wrapped, then a text that is wrapped beside it.

    is_command: whether the text is a command of the shell, which is wrapped so that a shell joins it again.
    """

    head: tuple[StyledText, ...] = ()
    text: str = ""
    style: str = ""
    is_command: bool = False


def printable(text: str) -> str:
    """Return a text without control characters: reports repeat the names that processes give themselves."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def format_age(seconds: float) -> str:
    """Return how long ago a time was."""
    return "just now" if seconds < 1 else f"{format_duration(seconds)} ago"
