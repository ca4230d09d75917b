"""How long ago something was. Pure."""

from __future__ import annotations

from nodeguard.model.instant import Instant


def age(now: Instant, since: float) -> float:
    """Seconds since a moment, 0 for one that is yet to come. since: seconds since the epoch."""
    return round(max(0.0, now.wall - since), 1)
