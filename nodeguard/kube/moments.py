"""Moments as the Kubernetes API writes them, in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The last second of the year 9999, which is the last that can be written.
_LAST = 253_402_300_799.0


def rfc3339(wall: float) -> str:
    """A moment in seconds since the epoch as text, to the second."""
    moment = _EPOCH + timedelta(seconds=int(min(max(wall, 0.0), _LAST)))
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def seconds(text: str) -> float:
    """A moment as text in seconds since the epoch; 0 for what is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return moment.timestamp() if moment.tzinfo is not None else 0.0
