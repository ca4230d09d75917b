"""Durations as configuration files and command lines write them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration as files write it: `30s`, `5m`, `24h`, `7d`. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return float(int(match[1]) * _UNIT_SECONDS[match[2]])


def parse_fractional_duration(text: str) -> float:
    """Return the seconds of a duration as command lines write it. Raises ValueError.

    Unlike in files, the number may have a fraction, and may have no unit: `0.5s`, `2h`, `45`.
    """
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNIT_SECONDS else (text, "s")
    return float(number) * _UNIT_SECONDS[unit]
