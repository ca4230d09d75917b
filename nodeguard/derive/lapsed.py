"""What could be derived before, and cannot be while a reading that it may rest on fails. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nodeguard.derive.world import World
from nodeguard.model.slot import parent

# Names of derived signals by slot.
Names = Mapping[str, Collection[str]]


def lapsed(world: World, known: Names, now: Names) -> dict[str, dict[str, str]]:
    """Reason by slot and signal, for what was known and is not derived now, while something fails.

    What vanishes while all sources can be read does not apply any more, and gets no reason.
    """
    if not world.failed and not world.refused:
        return {}
    found = {}
    for slot, names in known.items():
        missing = [name for name in names if name not in now.get(slot, ())]
        why = _reason(world, slot)
        if missing and why:
            found[slot] = dict.fromkeys(missing, why)
    return found


def _reason(world: World, slot: str) -> str:
    for place in (slot, parent(slot)):
        if place in world.refused:
            return world.refused[place]
    return next(iter(world.failed.values()), "")
