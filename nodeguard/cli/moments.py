"""Moments and lengths of time, written."""

from __future__ import annotations

import time

# Moments that a broken clock may claim and no calendar has are written as the nearest that one has.
_EARLIEST, _LATEST = 0.0, 253_402_300_799.0


def rfc3339(wall: float) -> str:
    """A moment, seconds since the epoch, in UTC to the second: `2026-11-21T09:12:33Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(wall, _EARLIEST), _LATEST)))


def spoken(wall: float) -> str:
    """A moment as a table shows it: `2026-11-21 09:12:33 UTC`."""
    return rfc3339(wall).replace("T", " ").replace("Z", " UTC")
