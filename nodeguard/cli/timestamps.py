"""Times and ages as text."""

from __future__ import annotations

from nodeguard.judge.formatting import format_duration
from nodeguard.model.instant import rfc3339

__all__ = ["format_age", "format_time", "rfc3339"]


def format_time(wall: float) -> str:
    """Return a time as tables show it: `2026-11-21 09:12:33 UTC`. wall: seconds since the epoch."""
    return rfc3339(wall).replace("T", " ").replace("Z", " UTC")


def format_age(seconds: float) -> str:
    """Return how long ago a time was."""
    return "just now" if seconds < 1 else f"{format_duration(seconds)} ago"
