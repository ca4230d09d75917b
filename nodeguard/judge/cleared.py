"""What people cleared, as it is remembered. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.events import moved
from nodeguard.judge.state import Cleared, SlotState

# Words of people that are remembered: each was of a finding that stood, so a node has far fewer.
_KEPT = 256

_BySlot = Mapping[str, tuple[Cleared, ...]]
_NONE: dict[str, Cleared] = {}


def by_slot(cleared: Iterable[Cleared]) -> _BySlot:
    """What people cleared, by slot."""
    found: dict[str, tuple[Cleared, ...]] = defaultdict(tuple)
    for one in cleared:
        found[one.slot] += (one,)
    return found


def of_part(cleared: _BySlot, slot: str, state: SlotState) -> dict[str, Cleared]:
    """By check, the latest that people cleared of a slot, of what sits there now, as far as that is known."""
    if slot not in cleared:
        return _NONE
    part = state.part.id if state.part else ""
    words = sorted(
        (one for one in cleared[slot] if not part or one.part in {"", part}), key=lambda one: one.at
    )
    return {one.check: one for one in words}


def with_more(cleared: Iterable[Cleared], new: Iterable[Cleared]) -> tuple[Cleared, ...]:
    """What people cleared and clear now; a later word on the same stands for an earlier one."""
    words = {(one.check, one.slot, one.part): one for one in (*cleared, *new)}
    return tuple(sorted(words.values(), key=lambda one: one.at)[-_KEPT:])


def carried(cleared: Iterable[Cleared], slots: Mapping[str, SlotState], ended: float) -> tuple[Cleared, ...]:
    """What people cleared in the boot before, of slots of which anything is remembered; see events.moved."""
    return tuple(replace(one, at=moved(one.at, ended)) for one in cleared if one.slot in slots)
