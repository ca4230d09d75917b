"""Moments and lengths of time, written."""

from __future__ import annotations

from nodeguard.judge.words import span
from nodeguard.model.instant import rfc3339

__all__ = ["ago", "rfc3339", "spoken"]


def spoken(wall: float) -> str:
    """A moment as a table shows it: `2026-11-21 09:12:33 UTC`."""
    return rfc3339(wall).replace("T", " ").replace("Z", " UTC")


def ago(seconds: float) -> str:
    """How long ago something was."""
    return "just now" if seconds < 1 else f"{span(seconds)} ago"
