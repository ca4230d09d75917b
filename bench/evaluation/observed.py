"""Observations of a world: the reports that reach the aggregator, and the votes that they make. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from random import Random

from msgspec import Struct

from bench.evaluation.symptoms import SILENT_CHECK, Firing, firings, symptom_of
from bench.evaluation.world import Background, Delay, NodeChange, NodeFault, Plant, Vote

# Seconds between two evaluations of an agent, between two heartbeats, and without one until it is stale.
# Source: the defaults of the agent and of the policy.
EVALUATION, HEARTBEAT, STALE = 10.0, 10.0, 45.0


class NodeReport(Struct, frozen=True):
    """A report of a node as it arrives: the checks that fire, with the time since which they fire."""

    at: float
    node: int
    firing: tuple[Firing, ...]


class Absence(Struct, frozen=True):
    """A time without reports of a node. last: its last heartbeat before it; is_down: as the node is down."""

    node: int
    last: float
    start: float
    end: float
    is_down: bool


def operator_changes(background: Background, plant: Plant) -> Iterator[NodeChange]:
    """Yield the changes of Nodes by operators, by time: a node is schedulable again when no work needs it."""
    holds: dict[int, list[str]] = defaultdict(list)
    changes = (*background.changes, *plant.changes)
    for change in sorted(changes, key=lambda change: (change.at, change.node)):
        reasons = holds[change.node]
        if change.unschedulable:
            reasons.append(change.maintenance)
        elif reasons:
            reasons.pop()
        yield NodeChange(change.at, change.node, bool(reasons), max(reasons, default=""))


class Observations(Struct, frozen=True):
    """What the aggregator receives: reports, by time; absences, by their start."""

    reports: tuple[NodeReport, ...]
    absences: tuple[Absence, ...]


def observations(background: Background, plant: Plant) -> Observations:
    """Return the observations of a world. Those before `background.before` are the same for each plant."""
    by_node: dict[int, list[NodeFault]] = defaultdict(list)
    for fault in (*background.faults, *plant.faults):
        if fault.onset < background.until and fault.node not in background.fleet.muted:
            by_node[fault.node].append(fault)
    reports, absences = list[NodeReport](), list[Absence]()
    for node, faults in by_node.items():
        chance = Random(f"{background.seed} {background.size_class} {background.attempt} node {node}")
        offset = chance.uniform(0.0, EVALUATION)
        silent = list(_absences(node, faults, offset))
        absences += silent
        reports += _reports(node, firings(faults), silent, offset, background.delay, chance)
    return Observations(
        tuple(sorted(reports, key=lambda report: (report.at, report.node))),
        tuple(sorted(absences, key=lambda absence: (absence.start, absence.node))),
    )


def observed_votes(background: Background, plant: Plant) -> tuple[Vote, ...]:
    """Return the votes of a world by time of report: each time that a check begins to fire on a node."""
    seen = observations(background, plant)
    votes = [
        Vote(absence.node, SILENT_CHECK, "", absence.last, absence.last + STALE, absence.end)
        for absence in seen.absences
        if absence.last + STALE < absence.end
    ]
    firing: dict[int, dict[Firing, float]] = defaultdict(dict)
    for report in seen.reports:
        before = firing[report.node]
        firing[report.node] = {row: before.get(row, report.at) for row in report.firing}
        ended = before.keys() - set(report.firing)
        votes += [_vote(report.node, row, before[row], report.at) for row in ended]
    for node, rows in firing.items():
        votes += [_vote(node, row, reported, inf) for row, reported in rows.items()]
    return tuple(sorted(votes, key=lambda vote: (vote.reported, vote.node, vote.check)))


def _vote(node: int, row: Firing, reported: float, cleared: float) -> Vote:
    return Vote(node, row.check, row.symptom, row.start, reported, cleared)


def _absences(node: int, faults: Iterable[NodeFault], offset: float) -> Iterator[Absence]:
    """Yield the times without reports of a node, merged."""
    spans: list[tuple[float, float, bool]] = []
    silent = (fault for fault in faults if not symptom_of(fault.symptom).check)
    for fault in sorted(silent, key=lambda fault: fault.onset):
        is_down = fault.symptom == "node-down"
        if spans and fault.onset <= spans[-1][1]:
            start, end, was_down = spans.pop()
            spans.append((start, max(end, fault.end), was_down or is_down))
        else:
            spans.append((fault.onset, fault.end, is_down))
    for start, end, is_down in spans:
        yield Absence(node, max(0.0, start - (start - offset) % HEARTBEAT), start, end, is_down)


def _reports(
    node: int,
    rows: Iterable[Firing],
    silent: Iterable[Absence],
    offset: float,
    delay: Delay,
    chance: Random,
) -> Iterator[NodeReport]:
    """Yield the reports of a node in order: one for each evaluation with another result. Those of an absence
    arrive at its end.
    """
    begins: dict[float, list[Firing]] = defaultdict(list)
    ends: dict[float, set[Firing]] = defaultdict(set)
    for row in rows:
        start, end = _evaluated(row.start, offset), _evaluated(row.end, offset)
        if start < end:
            begins[start].append(row)
            ends[end].add(row)
    firing: tuple[Firing, ...] = ()
    arrived = 0.0
    for at in sorted(begins.keys() | ends.keys()):
        firing = (*(row for row in firing if row not in ends.get(at, ())), *begins.get(at, ()))
        late = chance.lognormvariate(0.0, delay.sigma) * delay.median
        if chance.random() < delay.lost:
            late += delay.retry
        arrived = max(arrived, at + late)
        arrived = next((absence.end for absence in silent if absence.start <= arrived < absence.end), arrived)
        yield NodeReport(arrived, node, firing)


def _evaluated(at: float, offset: float) -> float:
    """Return the time of the first evaluation after a time."""
    return at + (offset - at) % EVALUATION
