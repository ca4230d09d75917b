"""A simulated fleet: agents report, the real planner plans, and marks are written, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from random import Random

from msgspec.structs import replace

from nodeguard.executors.advice.advised_marks import advised_marks
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.liveness import MAX_START_WAIT, may_act
from nodeguard.model.decision import NodeDecision
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import NO_OBSERVED_MARKS, ObservedMarks
from nodeguard.model.job import NodeJob
from nodeguard.model.policy import Policy
from nodeguard.simulate.agent_reports import age_report
from nodeguard.simulate.faults import Fault, FleetEvent, NodeChange, SimulatedAgents
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.observer import Observer
from nodeguard.wire.report import Report

# Seconds between two heartbeats of an agent, between two plans at least, and between two writes.
HEARTBEAT_SECONDS, _PLAN_SECONDS, WRITE_SECONDS = 10.0, 1.0, 0.02

# Seconds from the start of a fault until the jobs of its node are read, and between two of these readings.
_READING_DELAY, _READING_SECONDS = 1.0, 0.05

# Each so many nodes with mark requests delay the next plan by a second.
_NODES_PER_SECOND = 100

# Seconds without its kubelet after which Kubernetes reports a node as not ready.
_NOT_READY_SECONDS = 50.0
_NO_NODE = -1

_WALL, _MONO = 1_700_000_000.0, 10_000.0


class SimulatedFleet:
    """Healthy nodes, their agents, and a planner that has their first reports.

    A node without changes costs nothing: an agent that continues to report is recorded once, for all time.
    """

    def __init__(
        self,
        topology: SimulatedTopology,
        agents: SimulatedAgents,
        policy: Policy,
        observers: Sequence[Observer],
        chance: Random,
        *,
        make_planner: Callable[[Policy, Collection[str]], Planner] = Planner,
        without_agents: Collection[int] = (),
    ) -> None:
        """make_planner: from a policy and the checks. without_agents: nodes that never report."""
        self._checks = tuple(agents.agent.checks)
        self._make_planner = make_planner
        self.planner = make_planner(policy, self._checks)
        self._loop = PlanLoop(self.planner)
        self._nodes = list(topology.nodes)
        self._indexes = {node.key: index for index, node in enumerate(topology.nodes)}
        self._observers, self._chance = observers, chance
        self._reports: dict[int, tuple[float, Report]] = {}
        self._lost_agents = set(without_agents)
        self._writes: dict[str, NodeDecision] = {}
        self._observed: dict[str, ObservedMarks] = {}
        self._jobs: dict[int, NodeJob] = {}
        self._readings: deque[tuple[float, int]] = deque()  # of jobs
        self._timeouts: list[tuple[float, int]] = []
        self._healthy_report = agents.healthy_report
        self._started = 0.0
        self._last_write = self._last_plan = -inf
        self._plan_due = self._writes_since = 0.0
        self._degraded: set[str] = set()
        self._suppressed: set[str] = set()
        for index, node in enumerate(self._nodes):
            self.planner.update_node(node)
            if index not in self._lost_agents:
                self._receive(index, 0.0)

    def run(self, events: Iterable[FleetEvent], until: float) -> None:
        """Process events, which are in the order of time, up to a time in seconds."""
        remaining = iter(events)
        event = next(remaining, None)
        while True:
            write_at = max(self._last_write + WRITE_SECONDS, self._writes_since) if self._writes else inf
            timeout_at = self._timeouts[0][0] if self._timeouts else inf
            event_at = event.at if event is not None else inf
            reading_at = self._readings[0][0] if self._readings else inf
            at = min(event_at, write_at, timeout_at, reading_at, self._plan_due)
            if at > until:
                return
            if event is not None and event_at == at:
                self._process(event)
                event = next(remaining, None)
            elif write_at == at:
                self._write(at)
            elif timeout_at == at:
                self._time_out(heappop(self._timeouts)[1], at)
            elif reading_at == at:
                self._read_job(self._readings.popleft()[1], at)
            else:
                self._plan(at)

    def restart(self, at: float) -> None:
        """Replace the planner at a time, as after a kill of the aggregator: the new planner reads the Nodes
        and the recorded incidents, and all agents that run report to it again. Pending writes are lost.
        """
        before, self.planner = self.planner, self._make_planner(self.planner.policy, self._checks)
        self._loop = PlanLoop(self.planner)
        for node in self._nodes:
            self.planner.update_node(node, self._observed.get(node.key))
        self.planner.restore_incidents(before.all_incidents())
        self.planner.restore_term(_WALL + self._started, _WALL + at, self._now(at))
        self._started = at
        self._writes.clear()
        self._readings.clear()
        for index in range(len(self._nodes)):
            if index not in self._lost_agents:
                self._receive(index, at)
        for index in self._jobs:
            self._schedule_reading(index, at)
        agents = self.planner.state.stale_agents(self._now(at))
        # From then on, agents that have not reported count as stopped.
        heappush(self._timeouts, (at + MAX_START_WAIT, _NO_NODE))
        self._plan_due = at if may_act(agents, at, at) else at + MAX_START_WAIT

    def _now(self, at: float) -> Instant:
        return Instant(_WALL + at, _MONO + at, "aggregator")

    def _schedule_plan(self, at: float) -> None:
        self._plan_due = min(self._plan_due, max(at, self._last_plan + self._plan_interval()))

    def _process(self, event: FleetEvent) -> None:
        match event.kind:
            case "report" if event.report is not None:
                self._reports[event.node] = event.at, event.report
                if event.node not in self._lost_agents:
                    self._receive(event.node, event.at)
            case "agent lost":
                self._lose_agent(event, event.at - self._chance.uniform(0.0, HEARTBEAT_SECONDS))
            case "agent returns":
                self._lost_agents.discard(event.node)
                self._set_ready(event.node, event.at, ready=True)
                self._receive(event.node, event.at)
            case "node changed" if event.change is not None:
                self._change_node(event.change)
            case "fault starts" | "fault ends" if event.fault is not None:
                self._report_fault(event.fault, event.at, starts=event.kind == "fault starts")

    def _lose_agent(self, event: FleetEvent, last: float) -> None:
        """Stop the reports of a node. last: time of its last heartbeat."""
        self._lost_agents.add(event.node)
        self.planner.record_heartbeat(self._nodes[event.node].key, self._now(last))
        heappush(self._timeouts, (last + self.planner.policy.stale.after, _NO_NODE))
        if event.is_node_down:
            heappush(self._timeouts, (event.at + _NOT_READY_SECONDS, event.node))

    def _report_fault(self, fault: Fault, at: float, *, starts: bool) -> None:
        """Report the start or the end of a fault to the observers. The job of its node is read soon."""
        if fault.job and starts:
            self._jobs[fault.node] = NodeJob(fault.job, (_WALL + fault.job_start,))
            self._schedule_reading(fault.node, at)
        elif fault.job:
            self._jobs.pop(fault.node, None)
            self.planner.state.update_jobs(self._nodes[fault.node].key, ())
        for observer in self._observers:
            if starts:
                observer.fault_started(fault, at)
            else:
                observer.fault_ended(fault, at)

    def _schedule_reading(self, index: int, at: float) -> None:
        """Read the job of a node after those that wait already: as a job reader does, at a limited rate."""
        latest = self._readings[-1][0] if self._readings else -inf
        self._readings.append((max(at + _READING_DELAY, latest + _READING_SECONDS), index))

    def _read_job(self, index: int, at: float) -> None:
        if index in self._jobs:
            self.planner.state.update_jobs(self._nodes[index].key, (self._jobs[index],))
            self._schedule_plan(at)

    def _change_node(self, change: NodeChange) -> None:
        """Apply an operator's change of a Node."""
        node = self._nodes[change.node]
        node = replace(node, out_by_operator=change.unschedulable, maintenance=change.maintenance)
        self._nodes[change.node] = node
        self.planner.update_node(node)
        self._schedule_plan(change.at)

    def _receive(self, index: int, at: float) -> None:
        """Give the planner a node's latest report, and heartbeats for all later times."""
        reported_at, report = self._reports.get(index, (at, self._healthy_report))
        now, uid = self._now(at), self._nodes[index].key
        self.planner.record_report(uid, age_report(report, at - reported_at), now)
        self.planner.record_heartbeat(uid, replace(now, mono=inf))
        self._schedule_plan(at)

    def _time_out(self, index: int, at: float) -> None:
        """Plan after an agent became stale, or after a node that is down became not ready."""
        if index in self._lost_agents:
            self._set_ready(index, at, ready=False)
        self._schedule_plan(at)

    def _set_ready(self, index: int, at: float, *, ready: bool) -> None:
        if self._nodes[index].ready != ready:
            not_ready_since = 0.0 if ready else _WALL + at
            self._nodes[index] = replace(self._nodes[index], ready=ready, not_ready_since=not_ready_since)
            self.planner.update_node(self._nodes[index])

    def _write(self, at: float) -> None:
        uid = next(iter(self._writes))
        decision, index = self._writes.pop(uid), self._indexes[uid]
        before, node = self._observed.get(uid, NO_OBSERVED_MARKS), self._nodes[index]
        writes = self.planner.policy.marks
        after = advised_marks(decision, before, writes, out_by_operator=node.out_by_operator)
        self._observed[uid] = after
        self._last_write = at
        self.planner.record_written(uid, decision.record)
        self.planner.state.update_observed(uid, after)
        if before.present != after.present:
            for observer in self._observers:
                observer.marks_changed(index, after.present, at)
        self._schedule_plan(at)

    def _plan(self, at: float) -> None:
        now = self._now(at)
        self.planner.tick(now)
        step = self._loop.step(now)
        self._carry_out(step.plan, at)
        self._last_plan = at
        self._plan_due = max(at + self._plan_interval(), step.next_change - _MONO)
        self._report_diagnosis(at)

    def _carry_out(self, plan: Plan, at: float) -> None:
        if plan.decisions:
            self._writes_since = at
            by_name = sorted(plan.decisions, key=lambda decision: decision.name)
            self._writes.update((decision.node, decision) for decision in by_name)
        if plan.incidents:
            for observer in self._observers:
                observer.incidents_changed(plan.incidents)

    def _plan_interval(self) -> float:
        """Return the seconds between two plans: longer if many nodes have mark requests."""
        return max(_PLAN_SECONDS, len(self.planner.tracker.decisions) / _NODES_PER_SECOND)

    def _report_diagnosis(self, at: float) -> None:
        """Report domains and checks that the diagnosis has added to the degraded and suppressed ones."""
        degraded, suppressed = (
            set(self.planner.diagnosis.degraded_domains),
            self.planner.diagnosis.suppressed_checks,
        )
        if degraded == self._degraded and suppressed.keys() == self._suppressed:
            return
        for observer in self._observers:
            for domain in sorted(degraded - self._degraded):
                observer.domain_degraded(domain, at)
            for check in sorted(suppressed.keys() - self._suppressed):
                state = suppressed[check]
                observer.check_suppressed(check, at, real=state.confirmed, domain=state.domain)
        self._degraded, self._suppressed = degraded, set(suppressed)
