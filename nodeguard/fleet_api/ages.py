"""How long ago something was. Pure."""

from __future__ import annotations

from nodeguard.model.instant import Instant

# A hundred years: an agent with a broken clock may claim more, even without end.
_MOST = 3_155_760_000.0


def age(now: Instant, since: float) -> float:
    """Seconds since a moment, 0 for one that is yet to come. since: seconds since the epoch."""
    return round(min(max(0.0, now.wall - since), _MOST), 1)
