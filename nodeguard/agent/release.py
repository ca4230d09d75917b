"""Which GPUs are let go of, and until when. Pure."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.instant import Instant
from nodeguard.model.slot import NODE


class Release(Struct, frozen=True):
    """GPUs that are let go of: until so many seconds since that boot; all of them where slots is empty."""

    boot_id: str = ""
    until: float = 0.0
    slots: tuple[str, ...] = ()


def left(release: Release, now: Instant) -> frozenset[str]:
    """The slots to be left alone at this moment, NODE for all of them. Pure."""
    if release.boot_id != now.boot_id or now.mono >= release.until:
        return frozenset()
    return frozenset(release.slots or (NODE,))
