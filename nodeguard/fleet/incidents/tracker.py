"""The incident tracker: all incidents of the fleet, their changes, and their Events. No input, output or
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import MarkRequest, unconfirmed_requests
from nodeguard.fleet.decide.observed_marks import NodeRemoval, PlanObservation
from nodeguard.fleet.decide.release import ReleaseWait, cause_key
from nodeguard.fleet.incidents.events import IncidentEvent, event_of, resolve, still_marked, update_incident
from nodeguard.fleet.incidents.limits import MAX_SHARED
from nodeguard.fleet.incidents.node_incidents import NodeIncidents, incidents_of
from nodeguard.fleet.incidents.node_situation import NodeSituation, silenced_checks, unconfirmed_until
from nodeguard.fleet.incidents.parent_incidents import ParentIncidents, Subject
from nodeguard.fleet.incidents.recorded_incidents import RecordedIncidents
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.device import Device
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause
from nodeguard.model.policy import Policy

# The key of the incidents of domains and checks, which belong to no Node.
SHARED = ""

_NO_REMOVAL = NodeRemoval()


class IncidentChanges(Struct):
    """Changes to report. changed: incidents. transient: those that were over within their grace period."""

    changed: list[Incident] = []
    events: list[IncidentEvent] = []
    transient: list[Incident] = []


class IncidentTracker:
    """Tracks incidents. recorded: those of all nodes, domains and checks. pending: those with a mark in its
    grace period, by uid of their Node, and by name; see NodeIncidents. decisions: on the mark requests of the
    latest plan, by uid. touched: uids of the nodes that the next plan evaluates again, beside those to which
    time comes.
    """

    def __init__(
        self,
        state: FleetState,
        release_wait: Callable[[str, Device | None, MarkCause], ReleaseWait],
        granted: IncidentState,
    ) -> None:
        """release_wait: of a cause, by uid. granted: the state of an active mark."""
        self.recorded = RecordedIncidents(state.clock)
        self.pending: dict[str, dict[str, Incident]] = {}
        self.decisions: dict[str, tuple[MarkDecision, ...]] = {}
        self._state = state
        self._release_wait = release_wait
        self._granted = granted
        self.touched: set[str] = set()
        self._situations: dict[str, NodeSituation] = {}
        # Nodes that were not touched since their situation, of which time changes nothing.
        self._lasting: set[str] = set()
        # When each situation that changes with time does so, in seconds since the epoch.
        self._timed: dict[str, float] = {}

    @property
    def changes_at(self) -> float:
        """Return when an incident changes without an input, in seconds since the epoch; inf for never."""
        return min(self._timed.values(), default=inf)

    def restore(self, incidents: Collection[Incident]) -> None:
        """Restore the incidents from before this start."""
        self.recorded.restore(incidents)
        self.touched.update(incident.uid for incident in incidents)

    def touch(self, uid: str) -> None:
        """Record that the inputs of a node changed."""
        self.touched.add(uid)

    def touch_all(self) -> None:
        """Record that the degraded domains or suppressed checks changed."""
        self.touched |= self.recorded.by_uid.keys() | self._situations.keys()

    def reset(self) -> None:
        """Evaluate all nodes again, as with another policy."""
        self._situations.clear()
        self._lasting.clear()

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.decisions.pop(uid, None)
        self.pending.pop(uid, None)
        self._situations.pop(uid, None)
        self._lasting.discard(uid)
        self._timed.pop(uid, None)
        self.recorded.set_left_out(uid, ())

    def forget(self, now: Instant) -> None:
        """Remove incidents that were resolved long ago, or longest ago if there are many, and evaluate nodes
        with incidents beyond the limits again.
        """
        self.recorded.forget(now)
        for uid in self.recorded.with_room(now):
            self._situations.pop(uid, None)
            self.touched.add(uid)

    def pending_incident(self, name: str) -> Incident | None:
        """Return the pending incident of a name; None if no incident of that name is in its grace period."""
        return next((incidents[name] for incidents in self.pending.values() if name in incidents), None)

    def grace_end(self, uid: str, subject: Subject) -> float:
        """Return when the grace period of a subject without a mark request ends, as of the latest plan, in
        seconds since the epoch; 0 if it is in none.
        """
        situation = self._situations.get(uid)
        return situation.graced.get(subject, 0.0) if situation is not None else 0.0

    def update_nodes(
        self,
        policy: Policy,
        observation: PlanObservation,
        marked: Set[str],
        decisions: list[MarkDecision],
        deferred: Set[str],
        shared: Callable[[NodePlacement, LatestReport], ParentIncidents],
        now: Instant,
    ) -> IncidentChanges:
        """Return the changes of nodes' incidents.

        observation: of the plan. marked: uids of nodes with a planned or observed mark. deferred: uids of
        nodes that a later plan evaluates. shared: returns the incidents that explain a node's findings.
        """
        changes = IncidentChanges()
        dirty, self.touched = self.touched, set(deferred)
        decided = self._record_decisions(decisions)
        unsteady = {uid for uid in marked if not observation.is_steady(uid)}
        steady = self._lasting - dirty - decided - unsteady
        touched = dirty | self._timed.keys() | self.decisions.keys() | marked | decided
        # In order, so that the same inputs lead to the same plan.
        for uid in sorted(touched - steady - deferred - {SHARED}):
            self._timed.pop(uid, None)
            is_lasting = uid in self._lasting and uid not in dirty
            self._lasting.discard(uid)
            placement, report = self._state.placements.get(uid), self._state.reports.get(uid)
            if placement is None:
                self.pending.pop(uid, None)
                self._situations.pop(uid, None)
                self.recorded.set_left_out(uid, ())
                changes.changed.extend(self._orphaned(uid, now.wall))
                continue
            has_incidents = uid in self.pending or self.recorded.has_any(uid)
            has_faults = report is not None and bool(report.findings or report.injections)
            if not has_faults and uid not in marked and not has_incidents:
                continue
            previous = self._situations.get(uid)
            lasting = previous if is_lasting else None
            situation = self._situation(placement, report, policy, observation, shared, lasting, now)
            if situation is previous or situation == previous:
                continue
            self._situations[uid] = situation
            before = NodeIncidents(self.recorded.by_uid.get(uid, {}), self.pending.get(uid, {}))
            incidents = incidents_of(situation, before, now)
            changed = self.recorded.record(uid, incidents.recorded, now)
            if incidents.pending:
                self.pending[uid] = incidents.pending
            else:
                self.pending.pop(uid, None)
            changes.changed.extend(changed)
            events = (event_of(before.recorded.get(incident.name), incident) for incident in changed)
            changes.events.extend(event for event in events if event is not None)
            changes.transient.extend(incidents.transient)
        return changes

    def _record_decisions(self, decisions: Iterable[MarkDecision]) -> set[str]:
        """Record the decisions of a plan. Returns the nodes on which they are not the same as before."""
        by_node: dict[str, tuple[MarkDecision, ...]] = {}
        for decision in decisions:
            uid = decision.request.uid
            by_node[uid] = (*by_node[uid], decision) if uid in by_node else (decision,)
        before, self.decisions = self.decisions, by_node
        changed = set(before.keys() - by_node.keys())
        for uid, own in by_node.items():
            previous = before.get(uid)
            if previous == own:
                by_node[uid] = previous  # the same object, which is fast to compare
            else:
                changed.add(uid)
        return changed

    def _situation(
        self,
        placement: NodePlacement,
        report: LatestReport | None,
        policy: Policy,
        observation: PlanObservation,
        shared: Callable[[NodePlacement, LatestReport], ParentIncidents],
        lasting: NodeSituation | None,
        now: Instant,
    ) -> NodeSituation:
        """Return the situation of a node. lasting: its latest one, if only marks, decisions and jobs may have
        changed since.
        """
        uid = placement.uid
        node_marks = self._state.marks_in_effect(uid)
        decisions, jobs = self.decisions.get(uid, ()), self._state.jobs.names(uid)
        removal = observation.removal(uid) or _NO_REMOVAL
        waits = {
            cause_key(device, cause): self._release_wait(uid, device, cause)
            for device, cause in node_marks.causes()
        }
        if lasting is not None and lasting.placement is placement and lasting.report is report:
            self._lasting.add(uid)
            previous = lasting.decisions, lasting.marks, lasting.removal, lasting.waits, lasting.jobs
            if previous == (decisions, node_marks, removal, waits, jobs):
                return lasting
            return replace(
                lasting, decisions=decisions, marks=node_marks, removal=removal, waits=waits, jobs=jobs
            )
        parents, unconfirmed = ParentIncidents(), tuple[MarkRequest, ...]()
        if report is not None and (report.findings or report.injections):
            parents = shared(placement, report)
            unconfirmed = unconfirmed_requests(placement, report)
        situation = NodeSituation(
            placement=placement,
            report=report,
            decisions=decisions,
            marks=node_marks,
            removal=removal,
            waits=waits,
            shared=parents,
            granted=self._granted,
            graced=unconfirmed_until(unconfirmed, policy, now.wall),
            silenced=silenced_checks(placement, report, node_marks, policy, now.wall),
            jobs=jobs,
        )
        if situation.changes_at < inf:
            self._timed[uid] = situation.changes_at
        elif not (unconfirmed or policy.silences):
            self._lasting.add(uid)
        return situation

    def _orphaned(self, uid: str, now: float) -> list[Incident]:
        """Resolve the incidents of a Node that no longer exists. Returns these."""
        if uid in self._state.nodes:
            return []
        incidents = self.recorded.by_uid.get(uid, {})
        resolved = [
            resolve(incident, now, "its Node is gone") for incident in incidents.values() if incident.is_open
        ]
        incidents.update((incident.name, incident) for incident in resolved)
        return resolved

    def update_shared(
        self, current: Iterable[Incident], observation: PlanObservation, now: Instant
    ) -> IncidentChanges:
        """Return the changed incidents of domains and checks; those that are not current are resolved, once
        their mark is on no Node any more.
        """
        before, pending = self.recorded.by_uid.get(SHARED, {}), dict[str, Incident]()
        after: dict[str, Incident] = {}
        for incident in current:
            past = before.get(incident.name)
            updated = update_incident(past, incident, now.wall)
            if incident.state != IncidentState.PENDING:
                after[incident.name] = updated
                continue
            pending[incident.name] = updated
            if past is not None:
                after[incident.name] = past
        for name, past in before.items():
            if name in after or name in pending:
                continue
            after[name] = past
            if past.is_open:
                removal = observation.domain_removal(past.domain) if past.domain else None
                after[name] = still_marked(past, removal, now) if removal else resolve(past, now.wall)
        if pending:
            self.pending[SHARED] = pending
        else:
            self.pending.pop(SHARED, None)
        changed = self.recorded.record(SHARED, after, now, MAX_SHARED)
        events = (event_of(before.get(incident.name), incident) for incident in changed)
        return IncidentChanges(changed, [event for event in events if event is not None])
