"""Shares and lengths of time as the policy file writes them."""

from __future__ import annotations

from nodeguard.catalog.check_schema import parse_duration

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))

# A policy that waits longer has another unit in mind.
MAX_DURATION = 365 * 86_400.0


def parse_share(text: str) -> float:
    """The share that a percentage is: `5%` → 0.05. Raises ValueError."""
    return float(text.removesuffix("%")) / 100


def format_share(value: float) -> str:
    """A share as it is written; see share."""
    return f"{round(value * 100, 4):g}%"


def parse_duration(text: str) -> float:
    """Seconds of `30s`, `10m`, `8h` or `1d`, up to a year, and of `0s`. Raises ValueError."""
    found = 0.0 if text == "0s" else parse_duration(text)
    if found > MAX_DURATION:
        raise ValueError(text)
    return found


def format_duration(value: float) -> str:
    """Whole seconds as they are written, in the largest unit that leaves no rest."""
    size, unit = next((size, unit) for size, unit in _UNITS if value % size == 0)
    return f"{value // size:.0f}{unit}"
