"""Which GPUs are detached from the agent, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE


class DetachedGpus(Struct, frozen=True):
    """GPUs that are detached in one boot. until: seconds since that boot by target, NODE for all GPUs."""

    boot_id: str = ""
    until: dict[str, float] = {}


def detach(detached: DetachedGpus, targets: Iterable[str], seconds: float, now: Instant) -> DetachedGpus:
    """Return the state after some more targets are detached, all GPUs if there are none."""
    present = {target: detached.until[target] for target in detached_targets(detached, now)}
    return DetachedGpus(now.boot_id, {**present, **dict.fromkeys(targets or (NODE,), now.mono + seconds)})


def detached_targets(detached: DetachedGpus, now: Instant) -> frozenset[str]:
    """Return the targets that are detached at a time, NODE for all GPUs."""
    if detached.boot_id != now.boot_id:
        return frozenset()
    return frozenset(target for target, until in detached.until.items() if now.mono < until)


def seconds_until_change(detached: DetachedGpus, now: Instant) -> float | None:
    """Return the seconds until fewer targets are detached, None if none is."""
    left = (detached.until[target] - now.mono for target in detached_targets(detached, now))
    return min(left, default=None)
