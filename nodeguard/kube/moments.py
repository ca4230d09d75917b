"""Moments as the Kubernetes API writes them. Pure."""

from __future__ import annotations

from datetime import datetime


def seconds(text: str) -> float:
    """A moment as text in seconds since the epoch; 0 for what is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return moment.timestamp() if moment.tzinfo is not None else 0.0
