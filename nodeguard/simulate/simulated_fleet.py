"""A fleet in virtual time: agents are heard, plans are made, and what they want is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from random import Random

from msgspec.structs import replace

from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_marks import apply_desired
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DesiredNode
from nodeguard.model.policy import Policy
from nodeguard.simulate.agent_reports import age_report
from nodeguard.simulate.faults import FleetEvent, SimulatedAgents
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.observer import Observer, node_mark_state
from nodeguard.wire.report import Report

# Seconds between two beats of an agent, between two plans at least, and from one write to the next.
HEARTBEAT_SECONDS, _REST, WRITE_SECONDS = 10.0, 1.0, 0.02

# So many nodes that something is asked of make plans a second rarer.
_EACH = 100

# Seconds after which it is seen again whether a budget has room.
_AGAIN = 30.0

# Seconds without a word of its kubelet after which Kubernetes calls a node not ready.
_NOT_READY = 50.0
_NOBODY = -1

_WALL, _MONO = 1_700_000_000.0, 10_000.0


class SimulatedFleet:
    """Nodes that are all well, their agents, and a planner that has heard of them.

    Nothing is done for nodes that stay as they are: an agent that goes on beating is heard once, for good.
    """

    def __init__(
        self,
        places: SimulatedTopology,
        crowd: SimulatedAgents,
        policy: Policy,
        watchers: Sequence[Observer],
        chance: Random,
    ) -> None:
        self.planner = Planner(policy, crowd.agent.checks)
        self._nodes = list(places.nodes)
        self._numbers = {node.uid: number for number, node in enumerate(places.nodes)}
        self._watchers, self._chance = watchers, chance
        self._said: dict[int, tuple[float, Report]] = {}
        self._silent: set[int] = set()
        self._writes: dict[str, DesiredNode] = {}
        self._wakes: list[tuple[float, int]] = []
        self._well = crowd.healthy_report
        self._written = self._planned = -inf
        self._due = self._asked = 0.0
        self._blamed: set[str] = set()
        self._held: set[str] = set()
        for number, node in enumerate(self._nodes):
            self.planner.update_node(node)
            self._hear(number, 0.0)

    def run(self, moments: Iterable[FleetEvent], until: float) -> None:
        """Let happen what happens, which is in the order of time, up to a moment in seconds."""
        coming = iter(moments)
        following = next(coming, None)
        while True:
            write = max(self._written + WRITE_SECONDS, self._asked) if self._writes else inf
            wake = self._wakes[0][0] if self._wakes else inf
            after = following.at if following is not None else inf
            at = min(after, write, wake, self._due)
            if at > until:
                return
            if following is not None and after == at:
                self._happen(following)
                following = next(coming, None)
            elif write == at:
                self._write(at)
            elif wake == at:
                self._lapse(heappop(self._wakes)[1], at)
            else:
                self._plan(at)

    def _now(self, at: float) -> Instant:
        return Instant(_WALL + at, _MONO + at, "aggregator")

    def _news(self, at: float) -> None:
        self._due = min(self._due, max(at, self._planned + self._rest()))

    def _happen(self, one: FleetEvent) -> None:
        match one.kind:
            case "says" if one.report is not None:
                self._said[one.node] = one.at, one.report
                if one.node not in self._silent:
                    self._hear(one.node, one.at)
            case "falls silent":
                self._silent.add(one.node)
                last = one.at - self._chance.uniform(0.0, HEARTBEAT_SECONDS)
                self.planner.record_heartbeat(self._nodes[one.node].uid, self._now(last))
                heappush(self._wakes, (last + self.planner.policy.stale.after, _NOBODY))
                if one.is_node_down:
                    heappush(self._wakes, (one.at + _NOT_READY, one.node))
            case "is heard":
                self._silent.discard(one.node)
                self._see(one.node, ready=True)
                self._hear(one.node, one.at)
            case "begins" if one.fault is not None:
                for watcher in self._watchers:
                    watcher.fault_started(one.fault, one.at)
            case "ends" if one.fault is not None:
                for watcher in self._watchers:
                    watcher.fault_ended(one.fault, one.at)

    def _hear(self, number: int, at: float) -> None:
        said, report = self._said.get(number, (at, self._well))
        now, uid = self._now(at), self._nodes[number].uid
        self.planner.record_report(uid, age_report(report, at - said), now)
        self.planner.record_heartbeat(uid, replace(now, mono=inf))
        self._news(at)

    def _lapse(self, number: int, at: float) -> None:
        """Somebody has been silent for long enough to be thought so: here, or where its kubelet is heard."""
        if number in self._silent:
            self._see(number, ready=False)
        self._news(at)

    def _see(self, number: int, *, ready: bool) -> None:
        if self._nodes[number].ready != ready:
            self._nodes[number] = replace(self._nodes[number], ready=ready)
            self.planner.update_node(self._nodes[number])

    def _write(self, at: float) -> None:
        uid = next(iter(self._writes))
        what, number = self._writes.pop(uid), self._numbers[uid]
        before = self._nodes[number]
        after = self._nodes[number] = apply_desired(before, what)
        self._written = at
        self.planner.record_written(uid, what.state)
        self.planner.update_node(after)
        if node_mark_state(before) != node_mark_state(after):
            for watcher in self._watchers:
                watcher.marks_changed(number, node_mark_state(after), at)
        self._news(at)

    def _plan(self, at: float) -> None:
        now = self._now(at)
        self.planner.tick(now)
        plan = self.planner.plan(now)
        self._carry_out(plan, at)
        self._planned = at
        self._due = max(at + self._rest(), self._next(at))
        self._look(at)

    def _carry_out(self, plan: Plan, at: float) -> None:
        if plan.nodes:
            self.planner.record_issued(plan)
            self._asked = at
            self._writes.update((one.uid, one) for one in sorted(plan.nodes, key=lambda one: one.name))
        if plan.incidents:
            for watcher in self._watchers:
                watcher.incidents_changed(plan.incidents)

    def _rest(self) -> float:
        """Seconds to the next plan at least: more where there is much to plan for, and little comes of it."""
        return max(_REST, len(self.planner.decisions) / _EACH)

    def _next(self, at: float) -> float:
        """When a plan may come to something else though nobody has said anything."""
        looked = self.planner.diagnosis.next_evaluation()
        due = inf if looked is None else looked - _MONO
        for outcomes in self.planner.decisions.values():
            for one in outcomes:
                if one.state == IncidentState.PENDING:
                    due = min(due, one.until - _WALL)
                elif one.reason:
                    due = min(due, at + _AGAIN)
        for proofs in self.planner.releases.proofs.values():
            for proof in proofs.values():
                due = min(due, proof.until - _MONO)
        return due

    def _look(self, at: float) -> None:
        blamed, held = set(self.planner.diagnosis.degraded_domains), self.planner.diagnosis.suppressed_checks
        if blamed == self._blamed and held.keys() == self._held:
            return
        for watcher in self._watchers:
            for domain in sorted(blamed - self._blamed):
                watcher.domain_degraded(domain, at)
            for domain in sorted(self._blamed - blamed):
                watcher.domain_recovered(domain, at)
            for check in sorted(held.keys() - self._held):
                watcher.check_suppressed(check, at, real=held[check].confirmed, domain=held[check].domain)
        self._blamed, self._held = blamed, set(held)
