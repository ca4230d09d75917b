"""Which GPUs are let go of, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE


class DetachedGpus(Struct, frozen=True):
    """GPUs that are let go of in one boot, NODE for all: until so many seconds after it began."""

    boot_id: str = ""
    until: dict[str, float] = {}


def detach(release: DetachedGpus, slots: Iterable[str], seconds: float, now: Instant) -> DetachedGpus:
    """The release after some more slots are let go of from now on, all GPUs where none is named."""
    kept = {slot: release.until[slot] for slot in detached_targets(release, now)}
    return DetachedGpus(now.boot_id, {**kept, **dict.fromkeys(slots or (NODE,), now.mono + seconds)})


def detached_targets(release: DetachedGpus, now: Instant) -> frozenset[str]:
    """The slots to be left alone at this moment, NODE for all of them."""
    if release.boot_id != now.boot_id:
        return frozenset()
    return frozenset(slot for slot, until in release.until.items() if now.mono < until)


def seconds_until_change(release: DetachedGpus, now: Instant) -> float | None:
    """Seconds until less is left alone, None where nothing is."""
    return min((release.until[slot] - now.mono for slot in detached_targets(release, now)), default=None)
