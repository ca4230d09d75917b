"""Counts, names, targets, times and ages as text, for all views and for commands without a fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodeguard.judge.formatting import format_duration
from nodeguard.model.hardware import Hardware, hardware_label
from nodeguard.model.target import NODE

_SHOWN = 4
_NAMES_SHOWN = 3


def count_noun(count: float, singular: str, plural: str = "") -> str:
    """Return a number of things: `1 node`, `12.5 nodes`."""
    noun = singular if count == 1 else plural or f"{singular}s"
    return f"{number_text(count)} {noun}"


def number_text(number: float) -> str:
    """Return a number of nodes or marks as text, without an exponent: `12.5`, `100000`."""
    return f"{number:.4g}" if abs(number) < 10_000 else f"{number:.0f}"


def first_names(names: Iterable[str], separator: str = ", ") -> str:
    """Return the first few of some names, and the number of the others."""
    listed = list(names)
    rest = len(listed) - _SHOWN
    return separator.join(listed[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def names_text(names: Sequence[str], total: int) -> str:
    """Return the first few names. A response may omit some: total is the number that exists."""
    shown = names[:_NAMES_SHOWN]
    rest = total - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def target_text(target: str, hardware: Hardware | None = None) -> str:
    """Return a target as text: `GPU 0000:3b:00`; with the names of its GPU as in hardware_label."""
    return "the node" if target == NODE else hardware_label(target, hardware)


def format_age(seconds: float) -> str:
    """Return how long ago a time was."""
    return "just now" if seconds < 1 else f"{format_duration(seconds)} ago"


def age_range(youngest: float, oldest: float) -> str:
    """Return how long ago several times were, in seconds: `25 s ago`, `25 s to 2 min ago`."""
    first, last = format_age(youngest), format_age(oldest)
    return last if first == last else f"{first.removesuffix(' ago')} to {last}"


def time_and_age(text: str, age: float) -> str:
    """Return a time of the API, and how long ago it was."""
    return f"{api_time(text)}, {format_age(age)}"


def api_time(text: str) -> str:
    """Return a time of the API as tables show it."""
    return text.replace("T", " ").replace("Z", " UTC")


def time_left(seconds: float) -> str:
    """Return how much of a period is left."""
    return f"{format_duration(round(seconds))} left" if seconds >= 1 else "about to end"
