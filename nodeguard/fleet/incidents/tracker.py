"""The incident tracker: all incidents of the fleet, their changes, and their Events. No input, output or
clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import MarkRequest, unconfirmed_requests
from nodeguard.fleet.decide.observed_marks import NodeRemoval, PlanObservation
from nodeguard.fleet.decide.release import ReleaseWait, cause_key
from nodeguard.fleet.incidents.events import IncidentEvent, event_of, resolve, still_marked, update_incident
from nodeguard.fleet.incidents.limits import (
    MAX_INJECTED,
    MAX_INJECTED_PER_NODE,
    MAX_PER_NODE,
    MAX_SHARED,
    MAX_TOTAL,
    IncidentKind,
    incident_kind,
    is_removable,
    limit_incidents,
    limit_without_mark,
    seconds_resolved,
    surplus,
)
from nodeguard.fleet.incidents.node_incidents import (
    NodeIncidents,
    NodeSituation,
    incidents_of,
    silenced_checks,
    unconfirmed_until,
)
from nodeguard.fleet.incidents.parent_incidents import ParentIncidents, Subject
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.device import Device
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause
from nodeguard.model.policy import Policy

# The key of the incidents of domains and checks, which belong to no Node.
SHARED = ""

# Seconds for which a resolved incident is recorded, so that it is recognised when it comes back.
_REMEMBERED = 86_400.0

# Seconds after the start for which none is removed for its age: a wrong clock is corrected by then.
_CLOCK_SETTLES = 3_600.0

# Above this share of the limit for incidents without marks, those that were resolved longest ago are removed.
_FULL = 0.9

_NO_REMOVAL = NodeRemoval()


class IncidentChanges(Struct):
    """Changes to report. changed: incidents. transient: those that were over within their grace period."""

    changed: list[Incident] = []
    events: list[IncidentEvent] = []
    transient: list[Incident] = []


class IncidentTracker:
    """Tracks incidents. incidents: the recorded ones, by uid of their Node, and by name; at most MAX_PER_NODE
    of a Node, and max_total; those of injected faults have a limit of their own, max_injected. pending: those
    with a mark in its grace period, in the same way, see NodeIncidents. left_out: names of the real ones
    beyond the limits now, by uid; left_out_total: since the start. decisions: on the mark requests of the
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
        self.incidents: dict[str, dict[str, Incident]] = {}
        self.pending: dict[str, dict[str, Incident]] = {}
        self.left_out: dict[str, frozenset[str]] = {}
        self.left_out_total = 0
        self.decisions: dict[str, tuple[MarkDecision, ...]] = {}
        self.max_total = MAX_TOTAL
        self.max_injected = MAX_INJECTED
        # Number of recorded incidents: of injected faults, and of real ones.
        self._counts: Counter[bool] = Counter()
        self._state = state
        self._release_wait = release_wait
        self._granted = granted
        # The kinds of the left-out incidents, by uid.
        self._left_out_kinds: dict[str, frozenset[IncidentKind]] = {}
        self.touched: set[str] = set()
        self._situations: dict[str, NodeSituation] = {}
        # Nodes that were not touched since their situation, of which time changes nothing.
        self._lasting: set[str] = set()
        # When each situation that changes with time does so, in seconds since the epoch.
        self._timed: dict[str, float] = {}
        # No resolved incident is old enough before then, in seconds of the monotonic clock; None at first.
        self._next_forget: float | None = None

    @property
    def changes_at(self) -> float:
        """Return when an incident changes without an input, in seconds since the epoch; inf for never."""
        return min(self._timed.values(), default=inf)

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Restore the incidents from before this start."""
        for incident in incidents:
            self.incidents.setdefault(incident.uid, {})[incident.name] = incident
            self.touch(incident.uid)
        self._update_counts()

    def touch(self, uid: str) -> None:
        """Record that the inputs of a node changed."""
        self.touched.add(uid)

    def touch_all(self) -> None:
        """Record that the degraded domains or suppressed checks changed."""
        self.touched |= self.incidents.keys() | self._situations.keys()

    def reset(self) -> None:
        """Evaluate all nodes again, as with another policy."""
        self._situations.clear()

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.decisions.pop(uid, None)
        self.pending.pop(uid, None)
        self._situations.pop(uid, None)
        self._lasting.discard(uid)
        self._timed.pop(uid, None)
        self._set_left_out(uid, ())

    def forget(self, now: Instant) -> None:
        """Remove incidents that were resolved long ago, or longest ago if there are many, and evaluate nodes
        with incidents beyond the limits again.
        """
        age = partial(self._state.clock.age, now=now)
        if self._next_forget is None:
            self._next_forget = now.mono + _CLOCK_SETTLES
        if now.mono >= self._next_forget:
            self._forget(lambda incident: seconds_resolved(incident, age, now) >= _REMEMBERED)
            oldest = max((seconds_resolved(incident, age, now) for incident in self._every()), default=0.0)
            self._next_forget = now.mono + _REMEMBERED - oldest
        for injected in (False, True):
            full = int(_FULL * limit_without_mark(self._most(injected=injected)))
            if self._counts[injected] > full:
                every = (incident for incident in self._every() if incident.injected == injected)
                self._remove(surplus(every, full, age))
        for uid in self._left_out_kinds:
            if self._has_room(uid, age):
                self._situations.pop(uid, None)
                self.touched.add(uid)

    def _remove(self, names: Set[str]) -> None:
        if names:
            self._forget(lambda incident: incident.name in names)

    def _every(self) -> Iterator[Incident]:
        for incidents in self.incidents.values():
            yield from incidents.values()

    def _most(self, *, injected: bool) -> int:
        return self.max_injected if injected else self.max_total

    def _update_counts(self) -> None:
        self._counts = Counter(incident.injected for incident in self._every())

    def _has_room(self, uid: str, age: RecordedAge) -> bool:
        """Return whether one of the left-out incidents of a node may be recorded now."""
        stay = Counter(
            incident.injected
            for incident in self.incidents.get(uid, {}).values()
            if not is_removable(incident, age)
        )
        for kind in self._left_out_kinds[uid]:
            in_all = self._most(injected=kind.injected)
            of_node = MAX_INJECTED_PER_NODE if kind.injected else MAX_PER_NODE
            if not kind.asks:
                in_all, of_node = limit_without_mark(in_all), limit_without_mark(of_node)
            if self._counts[kind.injected] < in_all and stay[kind.injected] < of_node:
                return True
        return False

    def _forget(self, is_gone: Callable[[Incident], bool]) -> None:
        for uid, incidents in list(self.incidents.items()):
            self.incidents[uid] = {
                name: incident for name, incident in incidents.items() if not is_gone(incident)
            }
            if not self.incidents[uid]:
                del self.incidents[uid]
        self._update_counts()

    def incident(self, name: str) -> Incident | None:
        """Return the incident of a name; None if there is none."""
        return next((incidents[name] for incidents in self.incidents.values() if name in incidents), None)

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
        by_node: dict[str, list[MarkDecision]] = {}
        for decision in decisions:
            by_node.setdefault(decision.request.uid, []).append(decision)
        changes = IncidentChanges()
        dirty, self.touched = self.touched, set(deferred)
        touched = dirty | self._timed.keys() | by_node.keys() | marked | self.decisions.keys()
        self.decisions = {uid: tuple(items) for uid, items in by_node.items()}
        for uid in sorted(touched - deferred - {SHARED}):  # so that the same inputs lead to the same plan
            self._timed.pop(uid, None)
            placement, report = self._state.placements.get(uid), self._state.reports.get(uid)
            if placement is None:
                self.pending.pop(uid, None)
                self._situations.pop(uid, None)
                self._set_left_out(uid, ())
                changes.changed.extend(self._orphaned(uid, now.wall))
                continue
            has_incidents = uid in self.incidents or uid in self.pending or uid in self._left_out_kinds
            has_faults = report is not None and bool(report.findings or report.injections)
            if not has_faults and uid not in marked and not has_incidents:
                continue
            previous = self._situations.get(uid)
            lasting = previous if uid in self._lasting and uid not in dirty else None
            situation = self._situation(placement, report, policy, observation, shared, lasting, now)
            if situation is previous or situation == previous:
                continue
            self._situations[uid] = situation
            before = NodeIncidents(self.incidents.get(uid, {}), self.pending.get(uid, {}))
            incidents = incidents_of(situation, before, now)
            recorded = self._record(uid, incidents.recorded, MAX_PER_NODE, now)
            if incidents.pending:
                self.pending[uid] = incidents.pending
            else:
                self.pending.pop(uid, None)
            changed = [
                incident for name, incident in recorded.items() if incident is not before.recorded.get(name)
            ]
            changes.changed.extend(changed)
            events = (event_of(before.recorded.get(incident.name), incident) for incident in changed)
            changes.events.extend(event for event in events if event is not None)
            changes.transient.extend(incidents.transient)
        return changes

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
        self._lasting.discard(uid)
        if situation.changes_at < inf:
            self._timed[uid] = situation.changes_at
        elif not (unconfirmed or policy.silences):
            self._lasting.add(uid)
        return situation

    def _record(
        self, uid: str, after: Mapping[str, Incident], limit: int, now: Instant
    ) -> dict[str, Incident]:
        """Record the incidents of a node up to the limits. Returns these. limit: of real ones."""
        before = self.incidents.get(uid, {})
        recorded, left_out = self._limit(before, after, limit, now, injected=False)
        if any(incident.injected for incident in (*before.values(), *after.values())):
            injected, beyond = self._limit(before, after, MAX_INJECTED_PER_NODE, now, injected=True)
            recorded, left_out = {**recorded, **injected}, {**left_out, **beyond}
        past = self.left_out.get(uid, frozenset())
        self._set_left_out(uid, left_out.values())
        self.left_out_total += len(self.left_out.get(uid, frozenset()) - past)
        if recorded:
            self.incidents[uid] = recorded
        else:
            self.incidents.pop(uid, None)
        return recorded

    def _limit(
        self,
        before: Mapping[str, Incident],
        after: Mapping[str, Incident],
        limit: int,
        now: Instant,
        *,
        injected: bool,
    ) -> tuple[dict[str, Incident], dict[str, Incident]]:
        """Return the incidents of a node to record, and those beyond the limits: of injected faults, or of
        real ones. Counts the recorded ones.
        """
        before = {name: incident for name, incident in before.items() if incident.injected == injected}
        after = {name: incident for name, incident in after.items() if incident.injected == injected}
        most, count = self._most(injected=injected), self._counts[injected]
        room = min(limit, len(before) + max(0, most - count))
        fewer = min(limit_without_mark(limit), limit_without_mark(most) - count + len(before))
        recorded, left_out = limit_incidents(
            before, after, room, fewer, partial(self._state.clock.age, now=now)
        )
        self._counts[injected] += len(recorded) - len(before)
        return recorded, left_out

    def _set_left_out(self, uid: str, incidents: Collection[Incident]) -> None:
        real = frozenset(incident.name for incident in incidents if not incident.injected)
        kinds = frozenset(map(incident_kind, incidents))
        self.left_out.pop(uid, None)
        self._left_out_kinds.pop(uid, None)
        if real:
            self.left_out[uid] = real
        if kinds:
            self._left_out_kinds[uid] = kinds

    def _orphaned(self, uid: str, now: float) -> list[Incident]:
        """Resolve the incidents of a Node that no longer exists. Returns these."""
        if uid in self._state.nodes:
            return []
        incidents = self.incidents.get(uid, {})
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
        before, pending = self.incidents.get(SHARED, {}), dict[str, Incident]()
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
        after = self._record(SHARED, after, MAX_SHARED, now)
        changed = [incident for name, incident in after.items() if incident is not before.get(name)]
        events = (event_of(before.get(incident.name), incident) for incident in changed)
        return IncidentChanges(changed, [event for event in events if event is not None])
