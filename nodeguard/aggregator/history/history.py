"""The history recorder: passes transitions of the fleet to the history writer, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.writer import HistoryWriter
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.fleet.decide.release import ReleasedMark
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
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import STATE_ANNOTATION, DeviceRule, MarkCause, MarkRecord
from nodeguard.model.node import Node
from nodeguard.model.policy import Policy
from nodeguard.wire.report import Report

# Seconds between two reads of operators' decisions.
_DECISIONS = 10.0

# Characters of one value of a policy that are recorded, such as a list of pools.
_LONGEST_VALUE = 400


class History:
    """Records the fleet in a file.

    decisions: returns operators' decisions, by name of the incident. started_at: seconds of a monotonic
    clock, the start of the aggregator. resumed: returns who ended the latest pause, and when; empty if
    unknown.
    """

    def __init__(
        self,
        planner: Planner,
        decisions: Callable[[], Mapping[str, OperatorDecision]],
        writer: HistoryWriter,
        started_at: float,
        *,
        resumed: Callable[[], str] = str,
    ) -> None:
        self.writer = writer
        self._planner = planner
        self._decisions = decisions

        self._resumed = resumed
        self._started_at = started_at
        self._nodes: dict[str, Node] = {}
        self._stale: frozenset[str] = frozenset()
        self._paused = ""
        self._policy: Policy | None = None
        self._rules: dict[str, DeviceRule] = {}
        # Marks with a removal that is planned and not observed yet, by uid of the Node, check and target.
        self._releasing: dict[str, dict[tuple[str, str], ReleasedMark]] = {}
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
        self._record_rules(now.wall)
        self._record_policy(now.wall)
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
            self._releasing.clear()
            return
        for marks in plan.nodes:
            self._add_note(now.wall, NoteKind.PLAN, marks.uid, marks.name, marks)
        for rule in plan.rules:
            self._add_note(now.wall, NoteKind.PLAN, rule.name, rule.node, rule)
        for uid, released in plan.released:
            self._releasing.setdefault(uid, {})[released.cause.check, released.cause.target] = released
        for marks in plan.nodes:
            # A cause that is set again, before its removal was observed, is not released.
            for cause in _causes(marks.state) if marks.uid in self._releasing else ():
                self._releasing[marks.uid].pop((cause.check, cause.target), None)

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
            before_marks = "" if before is None else before.annotations.get(STATE_ANNOTATION, "")
            if marks != before_marks:
                self._record_releases(at, uid, node.name, before_marks, marks)
                self.writer.put(HistoryNote(at, NoteKind.MARKS, uid, node.name, marks))
        if len(recorded) > len(nodes):
            for uid in recorded.keys() - nodes.keys():
                self._releasing.pop(uid, None)
                self.writer.put(NodeRemoved(at, uid, recorded.pop(uid).name))

    def _record_releases(self, at: float, uid: str, node: str, before: str, after: str) -> None:
        """Record which planned releases the change of a record shows. before, after: the record, as JSON."""
        planned = self._releasing.get(uid)
        if not planned:
            return
        left = {(cause.check, cause.target) for cause in _causes(after)}
        for cause in _causes(before):
            key = cause.check, cause.target
            if key not in left and (released := planned.pop(key, None)) is not None:
                self._add_note(at, NoteKind.RELEASED, uid, node, released)

    def _record_rules(self, at: float) -> None:
        """Record device rules that are new, have changed or are gone."""
        rules = self._planner.state.devices.rules
        if rules == self._rules:
            return
        for name in rules.keys() | self._rules.keys():
            rule, before = rules.get(name), self._rules.get(name)
            latest = rule or before
            if rule != before and latest is not None:
                state, former = (item.state if item is not None else "" for item in (rule, before))
                self._record_releases(at, latest.uid, latest.node, former, state)
                self.writer.put(HistoryNote(at, NoteKind.RULE, name, latest.node, state))
        self._rules = dict(rules)

    def _record_policy(self, at: float) -> None:
        if self._planner.policy is not self._policy:
            self._policy = self._planner.policy
            self.writer.put(HistoryNote(at, NoteKind.POLICY, "", "", policy_text(self._policy)))

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
            if not self._paused:
                text = self._resumed() or f"resumed at {rfc3339(at)}"
                self.writer.put(HistoryNote(at, NoteKind.RESUME, "", "", text))
        decisions = dict(self._decisions())
        for name, decision in decisions.items():
            if decision != self._decided.get(name):
                self._add_note(at, NoteKind.DECISION, name, "", decision)
        self._decided = decisions


def _causes(record: str) -> tuple[MarkCause, ...]:
    """Return the causes in a record on a Node or a device's rule; none if it cannot be read."""
    return (decode_record(record) or MarkRecord()).causes


def policy_text(policy: Policy) -> str:
    """Return the values of a policy by their paths, as JSON. The table of node locations is only a digest.

    A path has the names of the fields of the model, not those of the file: records of earlier versions do.
    """
    values: dict[str, str] = {}
    _add_values(values, "", _by_field_name(policy))
    return msgspec.json.encode(values, order="deterministic").decode()


def _by_field_name(content: object) -> object:
    if isinstance(content, msgspec.Struct):
        return {name: _by_field_name(getattr(content, name)) for name in content.__struct_fields__}
    if isinstance(content, dict):
        return {name: _by_field_name(value) for name, value in sorted(content.items())}
    if isinstance(content, tuple):
        return [_by_field_name(item) for item in content]
    return None if content is msgspec.UNSET else content


def _add_values(values: dict[str, str], path: str, content: object) -> None:
    if isinstance(content, dict) and content:
        for key, value in content.items():
            _add_values(values, f"{path}.{key}" if path else str(key), value)
        return
    text = msgspec.json.encode(content).decode()
    if len(text) > _LONGEST_VALUE:
        digest = blake2b(text.encode(), digest_size=4).hexdigest()
        text = f"{len(content) if isinstance(content, (list, tuple)) else len(text)} items, digest {digest}"
    values[path] = text
