"""The history recorder: passes transitions of the fleet to the history writer, without waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.writer import HistoryWriter
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.history_events import (
    POLICY_FORMAT,
    AgentLivenessChanged,
    FleetListed,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    ReportReceived,
    recorded_node,
)
from nodeguard.fleet.state.latest_report import reported_state
from nodeguard.fleet.state.liveness import MAX_START_WAIT
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.action import NodeAction
from nodeguard.model.device import Device, device_mark_name
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import MarkRecord, NodeMarks
from nodeguard.model.policy import Policy
from nodeguard.wire.report import Report

# Seconds between two reads of operators' decisions.
_DECISIONS = 10.0

# Seconds after which the policy is sent to the writer again. It stores equal values once, and the time: it
# proves that the recorder runs. A history without it for three times as long has a gap.
_PROOF = 60.0

# Seconds from one recording of the present state to the next one because of lost transitions.
_REPLAY = 300.0

# Characters of one value of a policy that are recorded, such as a list of pools.
_LONGEST_VALUE = 400


_NO_MARKS = NodeMarks()


class History:
    """Records the fleet in a file.

    decisions: returns operators' decisions, by name of the incident. started_at: seconds of a monotonic
    clock, the start of the aggregator. resumed: returns who ended the latest pause, and when; empty if
    unknown. actions: returns the stored actions. has_all_nodes: returns whether the planner has all Nodes
    with their marks; never without Kubernetes, where a node is known from its first report on.
    """

    def __init__(
        self,
        planner: Planner,
        decisions: Callable[[], Mapping[str, OperatorDecision]],
        writer: HistoryWriter,
        started_at: float,
        *,
        resumed: Callable[[], str] = str,
        actions: Callable[[], Collection[NodeAction]] = tuple,
        has_all_nodes: Callable[[], bool] = lambda: False,
    ) -> None:
        self.writer = writer
        self._planner = planner
        self._decisions = decisions
        self._has_all_nodes = has_all_nodes
        self._is_listed = False
        self._resumed = resumed
        self._actions = actions
        self._started_at = started_at
        self._nodes: dict[str, InventoryNode] = {}
        self._marks: dict[str, NodeMarks] = {}
        self._stale: frozenset[str] = frozenset()
        self._paused = ""
        self._policy: Policy | None = None
        self._policy_sent_at = float("-inf")
        # Marks with a removal that is planned and not observed yet, by uid of the Node, check and target.
        self._releasing: dict[str, dict[tuple[str, str], ReleasedMark]] = {}
        self._decided: dict[str, OperatorDecision] = {}
        # Whether each stored action is finished.
        self._finished: dict[str, bool] = {}
        self._decisions_read_at = float("-inf")
        # Parts of the present state that a file without them still receives.
        self._unrecorded: deque[Callable[[Instant], None]] = deque()
        self._replayed_at = float("-inf")

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
        self._record_changes(now)
        if self.writer.is_renewed or self._has_lost(now):
            self._replayed_at = now.mono
            self._record_present_state(is_new_file=self.writer.is_renewed)
            self.writer.is_renewed = False
        while self._unrecorded and self.writer.has_room():
            self._unrecorded.popleft()(now)
        if not self._unrecorded and not self._is_listed and self._has_all_nodes():
            self._is_listed = True
            marks = frozenset(
                _mark_note(uid, device)
                for uid, records in self._marks.items()
                for device in records.carriers
                if records.record_of(device) != MarkRecord()
            )
            self.writer.put(FleetListed(now.wall, frozenset(self._nodes), marks))

    def _has_lost(self, now: Instant) -> bool:
        """Return whether transitions were lost that the present state replaces. A loss while it is recorded
        does not start it again: it would never end.
        """
        is_due = not self._unrecorded and now.mono - self._replayed_at >= _REPLAY
        return is_due and self.writer.take_lost()

    def _record_present_state(self, *, is_new_file: bool) -> None:
        """Record the present state in this tick and the next ones, as far as the writer has room: a large
        fleet has more than the queue takes. Each part is read when it is recorded, so none is older than a
        transition before it.

        Planned releases stay: they are not observed yet.
        """
        self._is_listed = False
        repeat_report = partial(self._repeat_report, is_new_file=is_new_file)
        self._unrecorded = deque(
            [
                *(partial(repeat_report, uid) for uid in self._planner.reports),
                *(partial(self._repeat_incidents, key) for key in self._planner.tracker.recorded.by_uid),
                *(partial(self._repeat_node, uid) for uid in self._nodes),
                *(partial(self._repeat_marks, uid) for uid in self._marks),
                *(partial(self._repeat_stale, uid) for uid in self._stale),
                self._repeat_settings,
            ]
        )

    def _repeat_report(self, uid: str, now: Instant, *, is_new_file: bool) -> None:
        """Record the latest report of a node; not of a stale agent, which it would contradict in the file."""
        node, latest = self._planner.node(uid), self._planner.reports.get(uid)
        is_stale = uid in self._planner.stale_agents.stale
        if node is not None and latest is not None and (is_new_file or not is_stale):
            report = reported_state(latest, node.name, now.wall)
            self.writer.put(ReportReceived(now.wall, uid, report))

    def _repeat_incidents(self, key: str, now: Instant) -> None:
        self._record_incidents(now.wall, self._planner.tracker.recorded.by_uid.get(key, {}).values())

    def _repeat_node(self, uid: str, now: Instant) -> None:
        if uid in self._nodes:
            self.writer.put(NodeObserved(now.wall, recorded_node(self._nodes[uid])))

    def _repeat_marks(self, uid: str, now: Instant) -> None:
        marks = self._marks.get(uid, _NO_MARKS)
        for device in marks.carriers:
            self._record_change(now.wall, self._nodes[uid], device, MarkRecord(), marks.record_of(device))

    def _repeat_stale(self, uid: str, now: Instant) -> None:
        node = self._planner.node(uid)
        if uid in self._stale and node is not None:
            self.writer.put(AgentLivenessChanged(now.wall, uid, node.name, stale=True))

    def _repeat_settings(self, now: Instant) -> None:
        """Record the policy, operators' decisions and the actions."""
        self._paused = ""
        self._policy = None
        self._decided.clear()
        self._finished.clear()
        self._decisions_read_at = float("-inf")
        self._record_changes(now)

    def _record_incidents(self, at: float, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            self._add_note(at, NoteKind.INCIDENT, incident.name, incident.node, incident)

    def _record_changes(self, now: Instant) -> None:
        self._record_nodes(now.wall)
        self._record_marks(now.wall)
        self._record_policy(now)
        self._record_stale(now)
        if now.mono - self._decisions_read_at >= _DECISIONS:
            self._decisions_read_at = now.mono
            self._record_decisions(now.wall)
            self._record_actions(now.wall)

    def plan_made(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """Record a plan. Each replica records incidents; only the active one records marks.

        acts: whether this aggregator applies the plan.
        """
        self._record_incidents(now.wall, (*plan.incidents, *plan.transient_incidents))
        if not acts:
            self._releasing.clear()
            return
        for decision in plan.decisions:
            self._add_note(now.wall, NoteKind.PLAN, decision.node, decision.name, decision.marks)
        for uid, released in plan.released:
            self._releasing.setdefault(uid, {})[released.cause.check, released.cause.target] = released
        for decision in plan.decisions:
            # A cause that is set again, before its removal was observed, is not released.
            for cause in decision.record.causes if decision.node in self._releasing else ():
                self._releasing[decision.node].pop((cause.check, cause.target), None)

    def _add_note(self, at: float, kind: NoteKind, name: str, node: str, content: object) -> None:
        self.writer.put(HistoryNote(at, kind, name, node, msgspec.json.encode(content).decode()))

    def _record_nodes(self, at: float) -> None:
        """Record nodes that are new or have changed. Most are the same object as before."""
        nodes, recorded = self._planner.state.nodes, self._nodes
        for uid, node in nodes.items():
            before = recorded.get(uid)
            if before is not node:
                recorded[uid] = node
                now = recorded_node(node)
                if before is None or recorded_node(before) != now:
                    self.writer.put(NodeObserved(at, now))
        if len(recorded) > len(nodes):
            for uid in recorded.keys() - nodes.keys():
                self._releasing.pop(uid, None)
                self._marks.pop(uid, None)
                self.writer.put(NodeRemoved(at, uid, recorded.pop(uid).name))

    def _record_marks(self, at: float) -> None:
        """Record the marks of nodes and devices that are new, have changed or are gone."""
        state = self._planner.state
        for uid in self._marks.keys() | state.marks.marked_nodes():
            before, marks = self._marks.get(uid, _NO_MARKS), state.marks.observed(uid).records
            node = self._nodes.get(uid)
            if marks is before or marks == before or node is None:
                continue
            for device in dict.fromkeys((*before.carriers, *marks.carriers)):
                self._record_change(at, node, device, before.record_of(device), marks.record_of(device))
            if marks == _NO_MARKS:
                del self._marks[uid]
            else:
                self._marks[uid] = marks

    def _record_change(
        self, at: float, node: InventoryNode, device: Device | None, before: MarkRecord, after: MarkRecord
    ) -> None:
        """Record the change of a record on a node (None) or a device, and which planned releases it shows."""
        if before == after:
            return
        planned = self._releasing.get(node.key, {})
        left = {(cause.check, cause.target) for cause in after.causes}
        for cause in before.causes:
            key = cause.check, cause.target
            if key not in left and (released := planned.pop(key, None)) is not None:
                self._add_note(at, NoteKind.RELEASED, node.key, node.name, released)
        kind, name = _mark_note(node.key, device)
        self.writer.put(HistoryNote(at, kind, name, node.name, encode_record(after)))

    def _record_policy(self, now: Instant) -> None:
        if self._planner.policy is not self._policy or now.mono - self._policy_sent_at >= _PROOF:
            self._policy, self._policy_sent_at = self._planner.policy, now.mono
            self.writer.put(HistoryNote(now.wall, NoteKind.POLICY, "", "", policy_text(self._policy)))

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

    def _record_actions(self, at: float) -> None:
        """Record actions that began or ended. After a restart the writer leaves out what the file has."""
        actions = self._actions()
        for action in actions:
            if self._finished.get(action.key) != action.state.is_finished:
                self._add_note(at, NoteKind.ACTION, action.key, action.node, action)
        self._finished = {action.key: action.state.is_finished for action in actions}


def _mark_note(uid: str, device: Device | None) -> tuple[NoteKind, str]:
    """Return the kind and name of the note with the marks of a node (None) or of a device."""
    if device is None:
        return NoteKind.MARKS, uid
    return NoteKind.RULE, device_mark_name(uid, device)


def policy_text(policy: Policy) -> str:
    """Return the values of a policy by their paths in a policy file, as JSON. The table of node locations is
    only a digest.
    """
    values = {POLICY_FORMAT: "3"}
    _add_values(values, "", msgspec.to_builtins(policy, order="sorted"))
    return msgspec.json.encode(values, order="deterministic").decode()


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
