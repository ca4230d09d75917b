"""The history recorder: passes transitions of the fleet to the history writer, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.writer import HistoryWriter
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    ReportReceived,
    without_nodeguard,
)
from nodeguard.fleet.state.liveness import MAX_START_WAIT
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION
from nodeguard.model.node import Node
from nodeguard.wire.report import Report

# Seconds between two reads of operators' decisions.
_DECISIONS = 10.0


class History:
    """Records the fleet in a file.

    decisions: returns operators' decisions, by name of the incident. started_at: seconds of a monotonic
    clock, the start of the aggregator.
    """

    def __init__(
        self,
        planner: Planner,
        decisions: Callable[[], Mapping[str, OperatorDecision]],
        writer: HistoryWriter,
        started_at: float,
    ) -> None:
        self.writer = writer
        self._planner = planner
        self._decisions = decisions

        self._started_at = started_at
        self._nodes: dict[str, Node] = {}
        self._stale: frozenset[str] = frozenset()
        self._paused = ""
        self._decided: dict[str, OperatorDecision] = {}
        self._decisions_read_at = float("-inf")

    def report_received(self, caller: Caller, report: Report, now: Instant) -> None:
        """Record a report that the planner has accepted.

        Only objects that the planner stores anyway wait for the writer.
        """
        latest = self._planner.reports.get(caller.uid)
        if latest is not None:
            stored = replace(
                report,
                node=caller.node,
                passing=latest.proven,
                findings=latest.findings,
                inventory=latest.inventory,
            )
            self.writer.put(ReportReceived(now.wall, caller.uid, stored))

    def tick(self, now: Instant) -> None:
        """Record changes of Nodes, of stale agents and of decisions; called every second."""
        self.writer.check_progress()
        self._record_nodes(now.wall)
        self._record_stale(now)
        if now.mono - self._decisions_read_at >= _DECISIONS:
            self._decisions_read_at = now.mono
            self._record_decisions(now.wall)

    def plan_made(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """Record a plan. Each replica records incidents; only the active one records marks.

        acts: whether this aggregator applies the plan.
        """
        for incident in (*plan.incidents, *plan.transient_incidents):
            self._add_note(now.wall, NoteKind.INCIDENT, incident.name, incident.node, incident)
        if not acts:
            return
        for marks in plan.nodes:
            self._add_note(now.wall, NoteKind.PLAN, marks.uid, marks.name, marks)
        for rule in plan.rules:
            self._add_note(now.wall, NoteKind.PLAN, rule.name, rule.node, rule)
        for uid, freed in plan.released:
            node = self._planner.state.nodes.get(uid)
            self._add_note(now.wall, NoteKind.RELEASED, uid, node.name if node is not None else "", freed)

    def _add_note(self, at: float, kind: NoteKind, name: str, node: str, content: msgspec.Struct) -> None:
        self.writer.put(HistoryNote(at, kind, name, node, msgspec.json.encode(content).decode()))

    def _record_nodes(self, at: float) -> None:
        """Record Nodes that are new or have changed. Most are the same object as before."""
        nodes, recorded = self._planner.state.nodes, self._nodes
        for uid, node in nodes.items():
            before = recorded.get(uid)
            if before is node:
                continue
            recorded[uid] = node
            now = without_nodeguard(node)
            if before is None or without_nodeguard(before) != now:
                self.writer.put(NodeObserved(at, now))
            marks = node.annotations.get(STATE_ANNOTATION, "")
            if marks != ("" if before is None else before.annotations.get(STATE_ANNOTATION, "")):
                self.writer.put(HistoryNote(at, NoteKind.MARKS, uid, node.name, marks))
        if len(recorded) > len(nodes):
            for uid in recorded.keys() - nodes.keys():
                self.writer.put(NodeRemoved(at, uid, recorded.pop(uid).name))

    def _record_stale(self, now: Instant) -> None:
        """Record agents that become stale. Shortly after the start, agents without a report do not count."""
        stale = self._planner.stale_agents.stale
        if stale == self._stale and now.mono - self._started_at > MAX_START_WAIT:
            return
        early = now.mono - self._started_at <= MAX_START_WAIT
        counted = frozenset(uid for uid in stale if uid in self._planner.last_reports) if early else stale
        for uid in counted ^ self._stale:
            node = self._planner.state.nodes.get(uid)
            if node is not None:
                self.writer.put(AgentLivenessChanged(now.wall, uid, node.name, uid in counted))
        self._stale = counted

    def _record_decisions(self, at: float) -> None:
        if self._planner.paused != self._paused:
            self._paused = self._planner.paused
            self.writer.put(HistoryNote(at, NoteKind.PAUSE, "", "", self._paused))
        decisions = dict(self._decisions())
        for name, decision in decisions.items():
            if decision != self._decided.get(name):
                self._add_note(at, NoteKind.DECISION, name, "", decision)
        self._decided = decisions
