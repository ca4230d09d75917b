"""How much is remembered at most of slots of which nothing is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from nodeguard.judge.state import TargetState
from nodeguard.model.finding import Health

# Slots that only the kernel log or a sign tells of: a log can name any.
_HEARD_OF = 96

# Slots that a source should have reached and did not: more than any node has links, ports and functions.
_UNREACHED = 512


def limit_targets(slots: dict[str, TargetState]) -> dict[str, TargetState]:
    """Slots without the least of those that are not read, where these are too many; the same where not."""
    if len(slots) <= _HEARD_OF:
        return slots
    heard = {name: slot for name, slot in slots.items() if not slot.sources}
    silent = {
        name: slot
        for name, slot in slots.items()
        if slot.sources and not any(memory.signals for memory in slot.sources.values())
    }
    dropped = {*_least(heard, _HEARD_OF), *_least(silent, _UNREACHED)}
    return {name: slot for name, slot in slots.items() if name not in dropped} if dropped else slots


def _least(slots: Mapping[str, TargetState], most: int) -> list[str]:
    """What is beyond so many slots: those with the least wrong, the longest ago."""
    return sorted(slots, key=lambda name: retention_priority(slots[name]))[: max(0, len(slots) - most)]


def retention_priority(slot: TargetState) -> tuple[int, bool, float]:
    """How much is lost with a slot: how bad its worst finding is, whether a source knows it, and when
    it was last heard of.
    """
    health = max((one.finding.health for one in slot.active.values()), key=_rank, default=Health.OK)
    moments = [
        *(event.last for event in slot.events.values()),
        *slot.signs.values(),
        *(one.unread_since for one in slot.sources.values() if one.unread_since is not None),
    ]
    return health.rank, bool(slot.sources), max(moments, default=-inf)


def _rank(health: Health) -> int:
    return health.rank
