"""Faults of nodes, and the events that follow from them: reports, lost agents, and their return. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.simulate.agent_reports import (
    EVALUATION_SECONDS,
    SimulatedAgent,
    TimedReport,
    age_report,
    merge_reports,
)
from nodeguard.simulate.fault_kinds import FAULT_KINDS, REBOOT_SECONDS, UNREACHABLE, FaultKind
from nodeguard.simulate.simulated_machine import SUBSYSTEMS, Subsystem
from nodeguard.wire.report import Report


class Fault(Struct, frozen=True):
    """A fault of one node, or a decoy that looks like one. start, end: in seconds.

    node: its index. kind_name: of its kind. target_index: of the target that shows it. cause: path of the
    domain that causes it, or a name for another cause; empty for the node itself. job: that runs on the node
    then, empty for none; job_start: when it started.
    """

    start: float
    end: float
    node: int
    kind_name: str
    target_index: int = 0
    cause: str = ""
    job: str = ""
    job_start: float = 0.0

    @property
    def duration(self) -> float:
        """Its duration in seconds, rounded so that equal ones share their reports."""
        return round(self.end - self.start, 1)

    @property
    def kind(self) -> FaultKind:
        """Its kind."""
        return FAULT_KINDS[self.kind_name]


class NodeChange(Struct, frozen=True):
    """A change of a Node by an operator. at: seconds; node: its index. unschedulable: its cordon.
    maintenance: the reason in its annotation, empty for none.
    """

    at: float
    node: int
    unschedulable: bool = False
    maintenance: str = ""


EventKind = Literal["fault starts", "report", "agent lost", "agent returns", "node changed", "fault ends"]
_ORDER: tuple[EventKind, ...] = (
    "fault starts",
    "report",
    "agent lost",
    "agent returns",
    "node changed",
    "fault ends",
)


class FleetEvent(Struct, frozen=True):
    """An event of one node. report: of its agent; fault: that starts or ends; is_node_down: whether the node
    is lost, and not only its agent. change: of its Node.
    """

    at: float
    kind: EventKind
    node: int
    report: Report | None = None
    fault: Fault | None = None
    is_node_down: bool = False
    change: NodeChange | None = None


class SimulatedAgents:
    """The agents of a fleet, which evaluate faults. healthy_report: of a node without faults."""

    def __init__(self, agent: SimulatedAgent) -> None:
        self.agent = agent
        self.healthy_report = merge_reports([agent.healthy_report(subsystem) for subsystem in SUBSYSTEMS])
        self._merged: dict[tuple[int, ...], tuple[Report, tuple[Report, ...]]] = {}

    def events(
        self, faults: Iterable[Fault], chance: Random, changes: Iterable[NodeChange] = ()
    ) -> list[FleetEvent]:
        """Return all events of some faults, by time. Each agent evaluates at its own offset. changes: of
        Nodes, by operators.
        """
        faults_of: dict[int, list[Fault]] = defaultdict(list)
        for fault in faults:
            faults_of[fault.node].append(fault)
        events = [FleetEvent(change.at, "node changed", change.node, change=change) for change in changes]
        for node in sorted(faults_of):
            offset = chance.random() * EVALUATION_SECONDS
            events += self._node_events(node, sorted(faults_of[node], key=_start), offset)
        return sorted(events, key=lambda event: (event.at, _ORDER.index(event.kind), event.node))

    def _node_events(self, node: int, faults: Sequence[Fault], offset: float) -> Iterator[FleetEvent]:
        for fault in faults:
            yield FleetEvent(fault.start, "fault starts", node, fault=fault)
            yield FleetEvent(fault.end, "fault ends", node, fault=fault)
        for start, end, is_down in _merged_absences(_absences(faults)):
            yield FleetEvent(start, "agent lost", node, is_node_down=is_down)
            yield FleetEvent(end, "agent returns", node)
        reports = [
            (at + offset, subsystem, report)
            for subsystem in SUBSYSTEMS
            for at, report in self._subsystem_reports(
                subsystem, [fault for fault in faults if fault.kind.subsystem == subsystem]
            )
        ]
        parts: dict[str, tuple[float, Report]] = {
            subsystem: (0.0, self.agent.healthy_report(subsystem)) for subsystem in SUBSYSTEMS
        }
        for at, part, report in sorted(reports, key=lambda step: step[0]):
            parts[part] = at, report
            aged = tuple(age_report(latest, at - reported_at) for reported_at, latest in parts.values())
            yield FleetEvent(at, "report", node, self._node_report(aged))

    def _subsystem_reports(
        self, subsystem: Subsystem, faults: Sequence[Fault]
    ) -> Iterator[tuple[float, Report]]:
        """Yield the reports of one subsystem; faults that overlap are evaluated together."""
        group: list[Fault] = []
        group_end = 0.0
        for fault in faults:
            if group and fault.start >= group_end:
                yield from self._group_reports(subsystem, group)
                group, group_end = [], 0.0
            group.append(fault)
            single = self.agent.fault_reports(fault.kind, fault.target_index, fault.duration)
            group_end = max(group_end, fault.start + (single[-1].after if single else 0.0))
        if group:
            yield from self._group_reports(subsystem, group)

    def _group_reports(self, subsystem: Subsystem, group: Sequence[Fault]) -> Iterator[tuple[float, Report]]:
        first = group[0]
        reports: tuple[TimedReport, ...]
        if len(group) == 1:
            reports = self.agent.fault_reports(first.kind, first.target_index, first.duration)
        else:
            changes = [
                replace(change, after=change.after + fault.start - first.start)
                for fault in group
                for change in fault.kind.changes(fault.target_index, fault.duration)
            ]
            reports = self.agent.reports(subsystem, sorted(changes, key=lambda change: change.after))
        return ((first.start + timed.after, timed.report) for timed in reports)

    def _node_report(self, parts: tuple[Report, ...]) -> Report:
        """Return the report of a node's parts; the same object for the same parts, which most nodes have."""
        key = tuple(map(id, parts))
        if key not in self._merged:
            self._merged[key] = merge_reports(parts), parts
        return self._merged[key][0]


def _start(fault: Fault) -> tuple[float, str, int]:
    return fault.start, fault.kind_name, fault.target_index


# Start and end of a time without reports from a node, and whether the node is down.
_Absence = tuple[float, float, bool]


def _absences(faults: Iterable[Fault]) -> Iterator[_Absence]:
    """Yield the times without reports: the node is down, reboots, or its agent is unreachable."""
    for fault in faults:
        if fault.kind.subsystem is None:
            yield fault.start, fault.end, fault.kind_name != UNREACHABLE
        elif any(change.reboot for change in fault.kind.changes(fault.target_index, 1.0)):
            yield fault.end - min(REBOOT_SECONDS, fault.duration / 2), fault.end, True


def _merged_absences(absences: Iterable[_Absence]) -> list[_Absence]:
    """Return absences with those that overlap merged."""
    merged: list[_Absence] = []
    for start, end, is_down in sorted(absences):
        if merged and start <= merged[-1][1]:
            before = merged.pop()
            merged.append((before[0], max(end, before[1]), is_down or before[2]))
        else:
            merged.append((start, end, is_down))
    return merged
