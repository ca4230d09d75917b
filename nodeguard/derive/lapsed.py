"""What could be derived before, and cannot be since a reading that it rests on fails. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nodeguard.derive.world import World
from nodeguard.model.slot import parent

# Names of derived signals by slot.
Names = Mapping[str, Collection[str]]

# By slot and derived signal, what failed when it was derived no more: a source or a slot; empty while it is.
Known = Mapping[str, Mapping[str, str]]


def failing(world: World) -> frozenset[str]:
    """Sources that do not come to their end, and slots of which one could read nothing."""
    return frozenset((*world.failed, *world.refused))


def lapsed(world: World, known: Known, now: Names, before: Collection[str]) -> dict[str, dict[str, str]]:
    """What failed, by slot and signal, for what was known and is not derived now.

    before: what failed at the last look. What vanishes while nothing begins to fail does not apply any more.
    """
    begun = failing(world).difference(before)
    if not world.failed and not world.refused:
        return {}
    found: dict[str, dict[str, str]] = {}
    for slot, names in known.items():
        for name, cause in names.items():
            if name in now.get(slot, ()):
                continue
            culprit = cause if cause in world.failed or cause in world.refused else _begun(world, slot, begun)
            if culprit:
                found.setdefault(slot, {})[name] = culprit
    return found


def _begun(world: World, slot: str, begun: Collection[str]) -> str:
    """What of that which begins to fail may be why a signal of this slot can be derived no more."""
    places = (place for place in (slot, parent(slot)) if place in begun)
    return next(places, next((source for source in world.failed if source in begun), ""))


def why(world: World, cause: str) -> str:
    """Why a source or a slot cannot be read."""
    return world.refused.get(cause) or world.failed[cause]
