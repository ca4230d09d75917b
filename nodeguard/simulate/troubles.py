"""Troubles of nodes, and what agents say while they last. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.simulate.machine import HALVES, Half
from nodeguard.simulate.shapes import REBOOT, SHAPES, UNHEARD, Shape
from nodeguard.simulate.timeline import ROUND, Agent, aged, joined
from nodeguard.wire.report import Report


class Trouble(Struct, frozen=True):
    """Something that is wrong with a node, or looks so, from one moment to another, in seconds.

    node: its number. shape: its name. slot: number of the slot that shows it. cause: path of the domain that
    is behind it, or the name of what else is; empty for the node itself.
    """

    at: float
    until: float
    node: int
    shape: str
    slot: int = 0
    cause: str = ""

    @property
    def lasts(self) -> float:
        """For how many seconds, as shapes count them."""
        return round(self.until - self.at, 1)

    @property
    def kind(self) -> Shape:
        """What it is like."""
        return SHAPES[self.shape]


What = Literal["begins", "says", "falls silent", "is heard", "ends"]
_ORDER: tuple[What, ...] = ("begins", "says", "falls silent", "is heard", "ends")


class Moment(Struct, frozen=True):
    """Something that happens to a node. report: what it says; trouble: what begins or ends; dead: whether it
    is not only its agent that is not heard.
    """

    at: float
    what: What
    node: int
    report: Report | None = None
    trouble: Trouble | None = None
    dead: bool = False


class Crowd:
    """All agents of a fleet: what they say of troubles, and while all is well.

    rollouts: of a catalogue that is not in order: what is found on each of some nodes from a moment on.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.well = joined([agent.well(half) for half in HALVES])
        self._joined: dict[tuple[int, ...], tuple[Report, tuple[Report, ...]]] = {}

    def moments(
        self,
        troubles: Iterable[Trouble],
        chance: Random,
        rollouts: Mapping[int, tuple[float, Report]] | None = None,
    ) -> list[Moment]:
        """All that happens, in the order of time. Each agent has a beat of its own."""
        of: dict[int, list[Trouble]] = defaultdict(list)
        for one in troubles:
            of[one.node].append(one)
        rolled = rollouts or {}
        found: list[Moment] = []
        for node in sorted(of.keys() | rolled.keys()):
            late = chance.random() * ROUND
            found += self._of_node(node, sorted(of.get(node, ()), key=_began), late, rolled.get(node))
        return sorted(found, key=lambda one: (one.at, _ORDER.index(one.what), one.node))

    def _of_node(
        self, node: int, troubles: Sequence[Trouble], late: float, rollout: tuple[float, Report] | None
    ) -> Iterator[Moment]:
        for one in troubles:
            yield Moment(one.at, "begins", node, trouble=one)
            yield Moment(one.until, "ends", node, trouble=one)
        for start, end, dead in _together(_absences(troubles)):
            yield Moment(start, "falls silent", node, dead=dead)
            yield Moment(end, "is heard", node)
        said = [
            (at + late, half, report)
            for half in HALVES
            for at, report in self._of_half(half, [one for one in troubles if one.kind.half == half])
        ]
        parts: dict[str, tuple[float, Report]] = {half: (0.0, self.agent.well(half)) for half in HALVES}
        steps = [*said, *([(rollout[0], "rollout", rollout[1])] if rollout else [])]
        for at, part, report in sorted(steps, key=lambda step: step[0]):
            parts[part] = at, report
            whole = tuple(aged(one, at - told) for told, one in parts.values())
            yield Moment(at, "says", node, self._whole(whole))

    def _of_half(self, half: Half, troubles: Sequence[Trouble]) -> Iterator[tuple[float, Report]]:
        """What is said of one half: of troubles that overlap, what the judge makes of them together."""
        group: list[Trouble] = []
        over = 0.0
        for one in troubles:
            if group and one.at >= over:
                yield from self._told(half, group)
                group, over = [], 0.0
            group.append(one)
            alone = self.agent.of_shape(one.kind, one.slot, one.lasts)
            over = max(over, one.at + (alone[-1].after if alone else 0.0))
        if group:
            yield from self._told(half, group)

    def _told(self, half: Half, group: Sequence[Trouble]) -> Iterator[tuple[float, Report]]:
        first = group[0]
        if len(group) == 1:
            told = self.agent.of_shape(first.kind, first.slot, first.lasts)
        else:
            changes = [
                replace(change, after=change.after + one.at - first.at)
                for one in group
                for change in one.kind.script(one.slot, one.lasts)
            ]
            told = self.agent.told(half, sorted(changes, key=lambda change: change.after))
        return ((first.at + one.after, one.report) for one in told)

    def _whole(self, parts: tuple[Report, ...]) -> Report:
        """The report of some parts of a node; the same one for the same parts, which most nodes have."""
        name = tuple(map(id, parts))
        if name not in self._joined:
            self._joined[name] = joined(parts), parts
        return self._joined[name][0]


def _began(one: Trouble) -> tuple[float, str, int]:
    return one.at, one.shape, one.slot


# From when to when nothing is heard of a node, and whether it is dead.
_Absence = tuple[float, float, bool]


def _absences(troubles: Iterable[Trouble]) -> Iterator[_Absence]:
    """When nothing is heard of a node: it is dead, or starts anew, or cannot be reached."""
    for one in troubles:
        if one.kind.half is None:
            yield one.at, one.until, one.shape != UNHEARD
        elif any(change.reboot for change in one.kind.script(one.slot, 1.0)):
            yield one.until - min(REBOOT, one.lasts / 2), one.until, True


def _together(spans: Iterable[_Absence]) -> list[_Absence]:
    """Absences with those that overlap made one."""
    found: list[_Absence] = []
    for start, end, dead in sorted(spans):
        if found and start <= found[-1][1]:
            before = found.pop()
            found.append((before[0], max(end, before[1]), dead or before[2]))
        else:
            found.append((start, end, dead))
    return found
