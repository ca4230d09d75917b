"""Clocks of the aggregator: they continue while the machine is suspended."""

from __future__ import annotations

import time

from nodeguard.model.instant import Instant


def current_instant() -> Instant:
    """Return the current time. The boot id is empty: no state of the aggregator depends on the boot."""
    return Instant(time.time(), monotonic(), "")


def monotonic() -> float:
    """Return seconds of a monotonic clock. Leases and plans are timed by it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
