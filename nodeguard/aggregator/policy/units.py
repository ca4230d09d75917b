"""Units of the policy file: shares in percent, and durations."""

from __future__ import annotations

from nodeguard.config import units

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))

# Seconds. A longer duration is probably in a wrong unit.
MAX_DURATION = 365 * 86_400.0


def parse_share(text: str) -> float:
    """Return a percentage as a share: `5%` → 0.05. Raises ValueError."""
    return float(text.removesuffix("%")) / 100


def format_share(value: float) -> str:
    """Return a share as a percentage: 0.05 → `5%`."""
    return f"{round(value * 100, 4):g}%"


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `10m`, `8h` or `1d`, up to a year, and of `0s`. Raises ValueError."""
    duration = 0.0 if text == "0s" else units.parse_duration(text)
    if duration > MAX_DURATION:
        raise ValueError(text)
    return duration


def format_duration(value: float) -> str:
    """Return whole seconds as a duration in the largest unit that leaves no remainder: 600.0 → `10m`."""
    size, unit = next((size, unit) for size, unit in _UNITS if value % size == 0)
    return f"{value // size:.0f}{unit}"
