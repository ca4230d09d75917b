"""Moments and lengths of time, written."""

from __future__ import annotations

from nodeguard.judge.formatting import format_duration
from nodeguard.model.instant import rfc3339

__all__ = ["format_age", "rfc3339", "format_time"]


def format_time(wall: float) -> str:
    """A moment as a table shows it: `2026-11-21 09:12:33 UTC`."""
    return rfc3339(wall).replace("T", " ").replace("Z", " UTC")


def format_age(seconds: float) -> str:
    """How long ago something was."""
    return "just now" if seconds < 1 else f"{format_duration(seconds)} ago"
