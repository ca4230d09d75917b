"""Operators' clears of findings, as the judge remembers them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.events import to_new_boot
from nodeguard.judge.state import OperatorClear, TargetState

# Each clear belongs to a finding that was active, so a node has far fewer.
_MAX_CLEARS = 256

_ByTarget = Mapping[str, tuple[OperatorClear, ...]]
_NONE: dict[str, OperatorClear] = {}


def clears_by_target(clears: Iterable[OperatorClear]) -> _ByTarget:
    """Return the clears of each target."""
    by_target: dict[str, tuple[OperatorClear, ...]] = defaultdict(tuple)
    for clear in clears:
        by_target[clear.target] += (clear,)
    return by_target


def latest_clears(by_target: _ByTarget, target: str, state: TargetState) -> dict[str, OperatorClear]:
    """Return the latest clear of each check that applies to the component in a target's location.

    Where the component is not known, every clear of the target applies.
    """
    if target not in by_target:
        return _NONE
    component = state.component.id if state.component else ""
    applying = (clear for clear in by_target[target] if not component or clear.component in {"", component})
    return {clear.check: clear for clear in sorted(applying, key=lambda clear: clear.at)}


def add_clears(before: Iterable[OperatorClear], new: Iterable[OperatorClear]) -> tuple[OperatorClear, ...]:
    """Return all clears, oldest first; a new one replaces one of the same check, target and component."""
    clears = {(clear.check, clear.target, clear.component): clear for clear in (*before, *new)}
    return tuple(sorted(clears.values(), key=lambda clear: clear.at)[-_MAX_CLEARS:])


def carry_over_clears(
    clears: Iterable[OperatorClear], targets: Mapping[str, TargetState], ended: float
) -> tuple[OperatorClear, ...]:
    """Return the clears of the boot before, on this boot's clock, of targets that have state; see
    to_new_boot.
    """
    return tuple(
        replace(clear, at=to_new_boot(clear.at, ended)) for clear in clears if clear.target in targets
    )
