"""Troubles of nodes, and what agents say while they last. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.simulate.agent_reports import ROUND, SimulatedAgent, age_report, merge_reports
from nodeguard.simulate.fault_kinds import FAULT_KINDS, REBOOT_SECONDS, UNREACHABLE, FaultKind
from nodeguard.simulate.simulated_machine import SUBSYSTEMS, Subsystem
from nodeguard.wire.report import Report


class Fault(Struct, frozen=True):
    """Something that is wrong with a node, or looks so, from one moment to another, in seconds.

    node: its number. shape: its name. slot: number of the slot that shows it. cause: path of the domain that
    is behind it, or the name of what else is; empty for the node itself.
    """

    start: float
    end: float
    node: int
    kind_name: str
    target_index: int = 0
    cause: str = ""

    @property
    def duration(self) -> float:
        """For how many seconds, as shapes count them."""
        return round(self.end - self.start, 1)

    @property
    def kind(self) -> FaultKind:
        """What it is like."""
        return FAULT_KINDS[self.kind_name]


EventKind = Literal["begins", "says", "falls silent", "is heard", "ends"]
_ORDER: tuple[EventKind, ...] = ("begins", "says", "falls silent", "is heard", "ends")


class FleetEvent(Struct, frozen=True):
    """Something that happens to a node. report: what it says; trouble: what begins or ends; dead: whether it
    is not only its agent that is not heard.
    """

    at: float
    kind: EventKind
    node: int
    report: Report | None = None
    fault: Fault | None = None
    is_node_down: bool = False


class SimulatedAgents:
    """All agents of a fleet: what they say of troubles, and while all is well.

    rollouts: of a catalogue that is not in order: what is found on each of some nodes from a moment on.
    """

    def __init__(self, agent: SimulatedAgent) -> None:
        self.agent = agent
        self.healthy_report = merge_reports([agent.healthy_report(half) for half in SUBSYSTEMS])
        self._joined: dict[tuple[int, ...], tuple[Report, tuple[Report, ...]]] = {}

    def events(
        self,
        faults: Iterable[Fault],
        chance: Random,
        rollouts: Mapping[int, tuple[float, Report]] | None = None,
    ) -> list[FleetEvent]:
        """All that happens, in the order of time. Each agent has a beat of its own."""
        of: dict[int, list[Fault]] = defaultdict(list)
        for one in faults:
            of[one.node].append(one)
        rolled = rollouts or {}
        found: list[FleetEvent] = []
        for node in sorted(of.keys() | rolled.keys()):
            late = chance.random() * ROUND
            found += self._of_node(node, sorted(of.get(node, ()), key=_began), late, rolled.get(node))
        return sorted(found, key=lambda one: (one.at, _ORDER.index(one.kind), one.node))

    def _of_node(
        self, node: int, troubles: Sequence[Fault], late: float, rollout: tuple[float, Report] | None
    ) -> Iterator[FleetEvent]:
        for one in troubles:
            yield FleetEvent(one.start, "begins", node, fault=one)
            yield FleetEvent(one.end, "ends", node, fault=one)
        for start, end, dead in _together(_absences(troubles)):
            yield FleetEvent(start, "falls silent", node, is_node_down=dead)
            yield FleetEvent(end, "is heard", node)
        said = [
            (at + late, half, report)
            for half in SUBSYSTEMS
            for at, report in self._of_half(half, [one for one in troubles if one.kind.subsystem == half])
        ]
        parts: dict[str, tuple[float, Report]] = {
            half: (0.0, self.agent.healthy_report(half)) for half in SUBSYSTEMS
        }
        steps = [*said, *([(rollout[0], "rollout", rollout[1])] if rollout else [])]
        for at, part, report in sorted(steps, key=lambda step: step[0]):
            parts[part] = at, report
            whole = tuple(age_report(one, at - told) for told, one in parts.values())
            yield FleetEvent(at, "says", node, self._whole(whole))

    def _of_half(self, half: Subsystem, troubles: Sequence[Fault]) -> Iterator[tuple[float, Report]]:
        """What is said of one half: of troubles that overlap, what the judge makes of them together."""
        group: list[Fault] = []
        over = 0.0
        for one in troubles:
            if group and one.start >= over:
                yield from self._told(half, group)
                group, over = [], 0.0
            group.append(one)
            alone = self.agent.fault_reports(one.kind, one.target_index, one.duration)
            over = max(over, one.start + (alone[-1].after if alone else 0.0))
        if group:
            yield from self._told(half, group)

    def _told(self, half: Subsystem, group: Sequence[Fault]) -> Iterator[tuple[float, Report]]:
        first = group[0]
        if len(group) == 1:
            told = self.agent.fault_reports(first.kind, first.target_index, first.duration)
        else:
            changes = [
                replace(change, after=change.after + one.start - first.start)
                for one in group
                for change in one.kind.changes(one.target_index, one.duration)
            ]
            told = self.agent.reports(half, sorted(changes, key=lambda change: change.after))
        return ((first.start + one.after, one.report) for one in told)

    def _whole(self, parts: tuple[Report, ...]) -> Report:
        """The report of some parts of a node; the same one for the same parts, which most nodes have."""
        name = tuple(map(id, parts))
        if name not in self._joined:
            self._joined[name] = merge_reports(parts), parts
        return self._joined[name][0]


def _began(one: Fault) -> tuple[float, str, int]:
    return one.start, one.kind_name, one.target_index


# From when to when nothing is heard of a node, and whether it is dead.
_Absence = tuple[float, float, bool]


def _absences(troubles: Iterable[Fault]) -> Iterator[_Absence]:
    """When nothing is heard of a node: it is dead, or starts anew, or cannot be reached."""
    for one in troubles:
        if one.kind.subsystem is None:
            yield one.start, one.end, one.kind_name != UNREACHABLE
        elif any(change.reboot for change in one.kind.changes(one.target_index, 1.0)):
            yield one.end - min(REBOOT_SECONDS, one.duration / 2), one.end, True


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
