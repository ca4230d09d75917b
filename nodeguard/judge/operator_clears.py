"""What people cleared, as it is remembered. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.events import to_new_boot
from nodeguard.judge.state import OperatorClear, TargetState

# Words of people that are remembered: each was of a finding that stood, so a node has far fewer.
_KEPT = 256

_BySlot = Mapping[str, tuple[OperatorClear, ...]]
_NONE: dict[str, OperatorClear] = {}


def clears_by_target(cleared: Iterable[OperatorClear]) -> _BySlot:
    """What people cleared, by slot."""
    found: dict[str, tuple[OperatorClear, ...]] = defaultdict(tuple)
    for one in cleared:
        found[one.target] += (one,)
    return found


def latest_clears(cleared: _BySlot, slot: str, state: TargetState) -> dict[str, OperatorClear]:
    """By check, the latest that people cleared of a slot, of what sits there now, as far as that is known."""
    if slot not in cleared:
        return _NONE
    part = state.component.id if state.component else ""
    words = sorted(
        (one for one in cleared[slot] if not part or one.component in {"", part}), key=lambda one: one.at
    )
    return {one.check: one for one in words}


def add_clears(cleared: Iterable[OperatorClear], new: Iterable[OperatorClear]) -> tuple[OperatorClear, ...]:
    """What people cleared and clear now; a later word on the same stands for an earlier one."""
    words = {(one.check, one.target, one.component): one for one in (*cleared, *new)}
    return tuple(sorted(words.values(), key=lambda one: one.at)[-_KEPT:])


def carry_over_clears(
    cleared: Iterable[OperatorClear], slots: Mapping[str, TargetState], ended: float
) -> tuple[OperatorClear, ...]:
    """What people cleared in the boot before, of slots of which anything is remembered; see events.moved."""
    return tuple(replace(one, at=to_new_boot(one.at, ended)) for one in cleared if one.target in slots)
