"""Sources of which no round has come in time. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.model.observation import Observation, Reading
from nodeguard.model.slot import NODE


def overdue(latest: Iterable[Reading], now: float) -> list[Reading]:
    """For each reading that does not hold any more, one that failed in its place.

    latest: each source's latest reading. now: seconds since boot.
    """
    return [
        Reading(
            one.source,
            now,
            (Observation(one.source, NODE, "failed", detail=_why(now - one.at)),),
            complete=False,
        )
        for one in latest
        if now - one.at > one.valid
    ]


def _why(seconds: float) -> str:
    return f"not read for {seconds:.0f} s"
