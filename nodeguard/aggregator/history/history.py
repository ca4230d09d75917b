"""What the aggregator tells its history: transitions alone, as they are found, and nothing that waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

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

# Seconds between two looks at what people decided, which is in the hands of others.
_DECISIONS = 10.0


class HistoryRecorder(Protocol):
    """Who is told what happens, and says nothing to it."""

    def report_received(self, caller: Caller, report: Report, now: Instant) -> None:
        """A report was heard, and the planner has it."""

    def tick(self, now: Instant) -> None:
        """A second has passed: Nodes, silence and people's decisions may have changed."""

    def plan_made(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """A plan was made. acts: whether it is carried out here."""


class NoHistory:
    """No history is kept."""

    def report_received(self, caller: Caller, report: Report, now: Instant) -> None:
        """Nothing."""

    def tick(self, now: Instant) -> None:
        """Nothing."""

    def plan_made(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """Nothing."""


class History:
    """Remembers in a file.

    decisions: gives what people decided, by the incident's name. tell: takes sentences for the log. began:
    seconds of a clock that never jumps, from when on silence is told of.
    """

    def __init__(
        self,
        planner: Planner,
        decisions: Callable[[], Mapping[str, OperatorDecision]],
        writer: HistoryWriter,
        tell: Callable[[str], object],
        began: float,
    ) -> None:
        self.writer = writer
        self._planner = planner
        self._decisions = decisions
        self._tell = tell
        self._began = began
        self._nodes: dict[str, Node] = {}
        self._silent: frozenset[str] = frozenset()
        self._paused = ""
        self._decided: dict[str, OperatorDecision] = {}
        self._asked = float("-inf")

    def report_received(self, caller: Caller, report: Report, now: Instant) -> None:
        """See Remembers. What is kept until it is written is what the planner keeps anyway."""
        heard = self._planner.reports.get(caller.uid)
        if heard is not None:
            kept = replace(report, node=caller.node, passing=heard.proven, findings=heard.findings)
            self.writer.put(ReportReceived(now.wall, caller.uid, kept))

    def tick(self, now: Instant) -> None:
        """See Remembers."""
        for said in self.writer.take_messages():
            self._tell(said)
        self._see_nodes(now.wall)
        self._hear_silence(now)
        if now.mono - self._asked >= _DECISIONS:
            self._asked = now.mono
            self._read_decisions(now.wall)

    def plan_made(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """See Remembers. Each replica tells of incidents; of what is carried out, who acts."""
        for one in (*plan.incidents, *plan.transient_incidents):
            self._note(now.wall, NoteKind.INCIDENT, one.name, one.node, one)
        if not acts:
            return
        for what in plan.nodes:
            self._note(now.wall, NoteKind.PLAN, what.uid, what.name, what)
        for rule in plan.rules:
            self._note(now.wall, NoteKind.PLAN, rule.name, rule.node, rule)
        for uid, freed in plan.released:
            node = self._planner.state.nodes.get(uid)
            self._note(now.wall, NoteKind.RELEASED, uid, node.name if node is not None else "", freed)

    def _note(self, at: float, kind: NoteKind, name: str, node: str, what: msgspec.Struct) -> None:
        self.writer.put(HistoryNote(at, kind, name, node, msgspec.json.encode(what).decode()))

    def _see_nodes(self, at: float) -> None:
        """Nodes that are new, or other than they were. Most are the very same."""
        nodes, known = self._planner.state.nodes, self._nodes
        for uid, node in nodes.items():
            before = known.get(uid)
            if before is node:
                continue
            known[uid] = node
            now = without_nodeguard(node)
            if before is None or without_nodeguard(before) != now:
                self.writer.put(NodeObserved(at, now))
            marks = node.annotations.get(STATE_ANNOTATION, "")
            if marks != ("" if before is None else before.annotations.get(STATE_ANNOTATION, "")):
                self.writer.put(HistoryNote(at, NoteKind.MARKS, uid, node.name, marks))
        if len(known) > len(nodes):
            for uid in known.keys() - nodes.keys():
                self.writer.put(NodeRemoved(at, uid, known.pop(uid).name))

    def _hear_silence(self, now: Instant) -> None:
        """Who has fallen silent. Who was not heard yet at this aggregator's start may be about to speak."""
        silent = self._planner.stale_agents.stale
        if silent == self._silent and now.mono - self._began > MAX_START_WAIT:
            return
        early = now.mono - self._began <= MAX_START_WAIT
        quiet = frozenset(uid for uid in silent if uid in self._planner.last_reports) if early else silent
        for uid in quiet ^ self._silent:
            node = self._planner.state.nodes.get(uid)
            if node is not None:
                self.writer.put(AgentLivenessChanged(now.wall, uid, node.name, uid in quiet))
        self._silent = quiet

    def _read_decisions(self, at: float) -> None:
        if self._planner.paused != self._paused:
            self._paused = self._planner.paused
            self.writer.put(HistoryNote(at, NoteKind.PAUSE, "", "", self._paused))
        decisions = dict(self._decisions())
        for name, one in decisions.items():
            if one != self._decided.get(name):
                self._note(at, NoteKind.DECISION, name, "", one)
        self._decided = decisions
