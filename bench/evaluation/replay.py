"""A world played through the product's planner: reports, cordons, jobs and restarts in virtual time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from math import inf
from random import Random

from msgspec import Struct

from bench.evaluation.observed import NodeReport, Observations, observations, operator_changes
from bench.evaluation.report_book import ReportBook
from bench.evaluation.symptoms import Firing
from bench.evaluation.world import Background, JobStart, Plant, VersionChange
from nodeguard.fleet.planner import Planner
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy
from nodeguard.simulate.faults import FleetEvent, NodeChange
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.observer import Observer
from nodeguard.simulate.simulated_fleet import SimulatedFleet

MakePlanner = Callable[[Policy, Collection[str]], Planner]

# The wall clock at the start, as of the simulated fleet.
_WALL = 1_700_000_000.0

# Nodes of a large fleet, and seconds between two plans there: a diagnosis is at most so much later.
_LARGE, _PLAN_SECONDS = 1400, 5.0

# Seconds for which a job runs after its start, if the node starts no other one.
_JOB_SECONDS = 12 * 3600.0

# Starts of a job that the pods of a node tell: of the container that runs, and of the one before.
_READ_STARTS = 2


class Span(Struct):
    """What the product decided: a degraded domain, a suppressed check or a bad start, from start to end.

    topic: `domain`, `check` or `job`. domain: of a suppressed check, the version that explains it.
    """

    topic: str
    name: str
    start: float
    end: float = inf
    domain: str = ""


class MarkSpans(Observer):
    """Records for each node when it has a mark that keeps work away."""

    def __init__(self) -> None:
        self.marked: dict[int, float] = {}
        self.spans: list[tuple[int, float, float]] = []

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        """See Observer."""
        if now and node not in self.marked:
            self.marked[node] = at
        elif not now and node in self.marked:
            self.spans.append((node, self.marked.pop(node), at))

    def close(self, at: float) -> list[tuple[int, float, float]]:
        """Return node, start and end of each time with a mark, up to a time."""
        return [*self.spans, *((node, start, at) for node, start in self.marked.items())]


class WorldFleet(SimulatedFleet):
    """The fleet of a world with the product's planner. spans: of its diagnoses; marks: of its nodes."""

    def __init__(
        self, background: Background, book: ReportBook, policy: Policy, make_planner: MakePlanner
    ) -> None:
        fleet = background.fleet
        nodes = tuple(
            InventoryNode(f"uid-{index}", f"node-{index:05}", labels=dict(labels), gpus=8)
            for index, labels in enumerate(fleet.labels)
        )
        self.marks = MarkSpans()
        self.spans: list[Span] = []
        self._active: dict[tuple[str, str], Span] = {}
        self._background, self._book = background, book
        self._starts: list[tuple[JobStart, frozenset[int]]] = []
        self._lost_at: dict[tuple[int, float], float] = {}
        super().__init__(
            SimulatedTopology(nodes, {}),
            book.agents,
            policy,
            [self.marks],
            Random(0),
            make_planner=make_planner,
            without_agents=fleet.muted,
        )

    def play(self, plant: Plant, since: float, until: float) -> None:
        """Play the events of a world from a time to another; until `background.before` there is no cause."""
        background = self._background
        starts = sorted((*background.starts, *plant.starts), key=lambda start: start.at)
        self._starts = [(start, frozenset(start.nodes)) for start in starts]
        events = [event for event in self._events(plant) if since <= event.at < until]
        restart = plant.aggregator_restart or background.aggregator_restart or inf
        if since <= restart < until:
            first = bisect_right(events, restart, key=lambda event: event.at)
            self.run(events[:first], restart)
            self.restart(restart)
            events = events[first:]
        self.run(events, until)

    def _events(self, plant: Plant) -> list[FleetEvent]:
        """Return all events of a world, by time."""
        background = self._background
        seen = observations(background, plant)
        events = list(_reports(background, plant, seen, self._book))
        for absence in seen.absences:
            lost = FleetEvent(absence.start, "agent lost", absence.node, is_node_down=absence.is_down)
            self._lost_at[absence.node, absence.start] = absence.last
            events += [lost, FleetEvent(absence.end, "agent returns", absence.node)]
        events += [
            FleetEvent(
                change.at,
                "node changed",
                change.node,
                change=NodeChange(change.at, change.node, change.unschedulable, change.maintenance),
            )
            for change in operator_changes(background, plant)
        ]
        return sorted(events, key=lambda event: (event.at, event.node, event.kind))

    def _process(self, event: FleetEvent) -> None:
        if event.kind == "agent lost":
            self._lose_agent(event, self._lost_at[event.node, event.at])
        else:
            super()._process(event)

    def _receive(self, index: int, at: float) -> None:
        super()._receive(index, at)
        if self._starts and index in self._reports and self._reports[index][1].findings:
            self._schedule_reading(index, at)

    def _read_job(self, index: int, at: float) -> None:
        """Read the latest job that has started on a node; only nodes with findings are read."""
        starts = [start for start, nodes in self._starts if start.at <= at and index in nodes]
        if starts and at - starts[-1].at < _JOB_SECONDS:
            name = starts[-1].job
            times = tuple(_WALL + start.recorded_at for start in starts if start.job == name)[-_READ_STARTS:]
            self.planner.state.update_jobs(self._nodes[index].key, (NodeJob(name, times),))
            self._schedule_plan(at)

    def _plan_interval(self) -> float:
        """Return the seconds between two plans: more in a large fleet, where reports never pause."""
        interval = super()._plan_interval()
        return max(interval, _PLAN_SECONDS) if len(self._nodes) >= _LARGE else interval

    def _report_diagnosis(self, at: float) -> None:
        """Record which diagnoses began and ended."""
        diagnosis = self.planner.diagnosis
        current = {("domain", name): "" for name in diagnosis.degraded_domains}
        current |= {("check", name): state.domain for name, state in diagnosis.suppressed_checks.items()}
        current |= {("job", name): "" for name in diagnosis.bad_starts}
        if current.keys() == self._active.keys():
            return
        for topic, name in [key for key in self._active if key not in current]:
            self._active.pop((topic, name)).end = at
        for (topic, name), domain in current.items():
            if (topic, name) not in self._active:
                span = self._active[topic, name] = Span(topic, name, at, domain=domain)
                self.spans.append(span)


class _Node:
    """What a node reports: the checks that fire, the versions that it received and when, and the start of its
    agent.
    """

    def __init__(self) -> None:
        self.firing: tuple[Firing, ...] = ()
        self.versions: dict[str, VersionChange] = {}
        self.started_at: float | None = None


def _reports(
    background: Background, plant: Plant, observed: Observations, book: ReportBook
) -> Iterator[FleetEvent]:
    """Yield the reports of all nodes: on a new result, on another version, and from a new agent that has
    findings.
    """
    changes: list[tuple[float, int, NodeReport | VersionChange | None]] = []
    changes += [(report.at, report.node, report) for report in observed.reports]
    changes += [(change.at, change.node, change) for change in plant.versions]
    changes += [(at, node, None) for at, node in background.agent_restarts]
    changes += [(absence.end, absence.node, None) for absence in observed.absences if absence.is_down]
    nodes: dict[int, _Node] = defaultdict(_Node)
    for at, index, change in sorted(changes, key=lambda change: change[:2]):
        node = nodes[index]
        if isinstance(change, NodeReport):
            node.firing = change.firing
        elif change is not None:
            node.versions[change.version.partition("/")[0]] = change
        else:
            node.started_at = at
            if not node.firing:
                continue
        if index not in background.fleet.muted:
            report = book.report(NodeReport(at, index, node.firing), node.versions, node.started_at)
            yield FleetEvent(at, "report", index, report)
