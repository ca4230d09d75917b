"""What of a memory is written down where all of it would be too long. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nodeguard.derive.state import DeriveState
from nodeguard.judge.bounds import worth
from nodeguard.judge.state import JudgeState
from nodeguard.model.observation import Reading
from nodeguard.model.slot import kind

# What a node can have any number of, of names that anybody may choose; the least to be missed first. All of
# it is read again at once.
_MANY = ("probe", "fs")


def leaner(derived: DeriveState, judged: JudgeState) -> Iterator[tuple[DeriveState, JudgeState]]:
    """Less and less of what is remembered: first goes what is read again anyway, last what is worst."""
    for what in _MANY:
        derived, judged = _without(derived, judged, what)
        yield derived, judged
    derived = replace(derived, latest={}, lines={}, said={})
    yield derived, judged
    slots = judged.slots
    left = sorted(slots, key=lambda name: worth(slots[name]), reverse=True)
    while left:
        left = left[: len(left) // 2]
        yield derived, replace(judged, slots={name: slots[name] for name in left})
    yield DeriveState(boot_id=derived.boot_id), JudgeState(boot_id=judged.boot_id, cleared=judged.cleared)


def _without(derived: DeriveState, judged: JudgeState, what: str) -> tuple[DeriveState, JudgeState]:
    """What is remembered of all slots but those of one kind."""
    derived = replace(
        derived,
        latest={source: _less(reading, what) for source, reading in derived.latest.items()},
        best={slot: one for slot, one in derived.best.items() if kind(slot) != what},
    )
    return derived, replace(
        judged, slots={name: slot for name, slot in judged.slots.items() if kind(name) != what}
    )


def _less(reading: Reading, what: str) -> Reading:
    left = tuple(one for one in reading.observations if kind(one.slot) != what)
    return reading if len(left) == len(reading.observations) else replace(reading, observations=left)
