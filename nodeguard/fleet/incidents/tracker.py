"""Incidents of the fleet: those that changed, and what is said once of each. No input, output or clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.release import CauseKey, Proof
from nodeguard.fleet.incidents.events import IncidentEvent, event_of
from nodeguard.fleet.incidents.limits import (
    MAX_PER_NODE,
    MAX_SHARED,
    MAX_TOTAL,
    asks_for_mark,
    is_removable,
    limit_incidents,
    limit_without_mark,
    surplus,
)
from nodeguard.fleet.incidents.node_incidents import (
    NodeIncidents,
    NodeSituation,
    ParentIncidents,
    incidents_of,
    resolve,
    unconfirmed_until,
    update_incident,
)
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_marks import NodeMarks
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Policy

# Where the incidents of domains and checks are kept, which are of no single Node.
SHARED = ""

# Seconds for which an incident that is over is remembered, so that it is known when it comes back.
_REMEMBERED = 86_400.0

# Where there are more than this share of as many incidents as leave room for a warning, those that were
# resolved longest ago go.
_FULL = 0.9


class IncidentChanges(Struct):
    """What there is to report. changed: incidents. brief: those that were over within their grace period."""

    changed: list[Incident] = []
    events: list[IncidentEvent] = []
    transient: list[Incident] = []


class IncidentTracker:
    """incidents: those that are recorded, by uid of their Node, and by name; at most OF_NODE of a Node, and
    in_all. pending: those whose mark is in its grace period, in the same way, see NodeIncidents. left_out:
    names of those for which there is no room now, by uid. left_out_ever: how many there were. outcomes: of
    what was asked for last, by uid.
    """

    def __init__(
        self,
        roster: FleetState,
        heard: Mapping[str, LatestReport],
        proofs: Mapping[str, Mapping[CauseKey, Proof]],
        granted: IncidentState,
    ) -> None:
        """granted: the state of a mark that stands."""
        self.incidents: dict[str, dict[str, Incident]] = {}
        self.pending: dict[str, dict[str, Incident]] = {}
        self.left_out: dict[str, frozenset[str]] = {}
        self.left_out_total = 0
        self.decisions: dict[str, tuple[MarkDecision, ...]] = {}
        self.max_total = MAX_TOTAL
        self._count = 0
        self._roster = roster
        self._heard = heard
        self._proofs = proofs
        self._granted = granted
        # Nodes of which an incident is left out that asks for a mark.
        self._short_of_room: set[str] = set()
        self._dirty: set[str] = set()
        self._stories: dict[str, NodeSituation] = {}
        # Nothing is to be let go of before then, in seconds since the epoch.
        self._kept = 0.0

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Take over incidents from before this planner was."""
        for one in incidents:
            self.incidents.setdefault(one.uid, {})[one.name] = one
            self.touch(one.uid)
        self._count = sum(map(len, self.incidents.values()))

    def touch(self, uid: str) -> None:
        """Something is known of a node that was not."""
        self._dirty.add(uid)

    def touch_all(self) -> None:
        """Something is known of what nodes share that was not."""
        self._dirty |= self.incidents.keys()

    def reset(self) -> None:
        """All is to be told as if it never was, as by another policy."""
        self._stories.clear()

    def remove_node(self, uid: str) -> None:
        """A Node that is no more."""
        self.decisions.pop(uid, None)
        self.pending.pop(uid, None)
        self._stories.pop(uid, None)
        self._set_left_out(uid, {})

    def forget(self, now: float) -> None:
        """Let go of what has been over for long, or for longest where there is much, and look again at nodes
        of which an incident is left out. now: seconds since the epoch.
        """
        if now >= self._kept:
            self._forget(lambda one: not _is_remembered(one, now))
            over = (
                one.resolved_at
                for told in self.incidents.values()
                for one in told.values()
                if not one.is_open
            )
            self._kept = min(over, default=now) + _REMEMBERED
        full = int(_FULL * limit_without_mark(self.max_total))
        if self._count > full:
            every = (one for told in self.incidents.values() for one in told.values())
            gone = surplus(every, full, now)
            if gone:
                self._forget(lambda one: one.name in gone)
        for uid in self.left_out:
            if self._has_room(uid, now):
                self._stories.pop(uid, None)
                self._dirty.add(uid)

    def _has_room(self, uid: str, now: float) -> bool:
        """Return whether one of the incidents that are left out of a node may find room now."""
        in_all, of_node = self.max_total, MAX_PER_NODE
        if uid not in self._short_of_room:
            in_all, of_node = limit_without_mark(in_all), limit_without_mark(of_node)
        incidents = self.incidents.get(uid, {})
        stay = len(incidents) - sum(is_removable(incident, now) for incident in incidents.values())
        return self._count < in_all and stay < of_node

    def _forget(self, is_gone: Callable[[Incident], bool]) -> None:
        for uid, told in list(self.incidents.items()):
            self.incidents[uid] = {name: one for name, one in told.items() if not is_gone(one)}
            if not self.incidents[uid]:
                del self.incidents[uid]
        self._count = sum(map(len, self.incidents.values()))

    def incident(self, name: str) -> Incident | None:
        """An incident by its name; None where there is none."""
        return next((told[name] for told in self.incidents.values() if name in told), None)

    def pending_incident(self, name: str) -> Incident | None:
        """Return the pending incident of a name; None if no incident of that name is in its grace period."""
        return next((incidents[name] for incidents in self.pending.values() if name in incidents), None)

    def update_nodes(
        self,
        policy: Policy,
        holdings: Mapping[str, NodeMarks],
        outcomes: list[MarkDecision],
        shared: Callable[[NodePlacement, LatestReport], ParentIncidents],
        now: Instant,
    ) -> IncidentChanges:
        """Return what there is to report of nodes. shared: what of a node's others tell."""
        of: dict[str, list[MarkDecision]] = {}
        for outcome in outcomes:
            of.setdefault(outcome.request.uid, []).append(outcome)
        told = IncidentChanges()
        touched = self._dirty | of.keys() | holdings.keys() | self.decisions.keys()
        self._dirty = set()
        self.decisions = {uid: tuple(found) for uid, found in of.items()}
        for uid in touched - {SHARED}:
            seat, heard = self._roster.placements.get(uid), self._heard.get(uid)
            if seat is None:
                self.pending.pop(uid, None)
                self._stories.pop(uid, None)
                self._set_left_out(uid, {})
                told.changed.extend(self._orphaned(uid, now.wall))
                continue
            known = uid in self.incidents or uid in self.pending or uid in self.left_out
            if (heard is None or not heard.findings) and uid not in holdings and not known:
                continue
            others, graced = ParentIncidents(), frozenset[str]()
            if heard is not None and heard.findings:
                others = shared(seat, heard)
                graced = frozenset(unconfirmed_until(seat, heard, policy, now.wall))
            story = self._story(seat, heard, holdings.get(uid, NodeMarks()), others, graced)
            if story.shared.early or story.graced:
                # It is told of in time, though nothing else may happen.
                self._dirty.add(uid)
            if story == self._stories.get(uid):
                continue
            self._stories[uid] = story
            before = NodeIncidents(self.incidents.get(uid, {}), self.pending.get(uid, {}))
            found = incidents_of(story, before, policy, now)
            written = self._keep(uid, found.recorded, MAX_PER_NODE, now.wall)
            if found.pending:
                self.pending[uid] = found.pending
            else:
                self.pending.pop(uid, None)
            news = [one for name, one in written.items() if one is not before.recorded.get(name)]
            told.changed.extend(news)
            told.events.extend(filter(None, (event_of(before.recorded.get(one.name), one) for one in news)))
            told.transient.extend(found.transient)
        return told

    def _story(
        self,
        seat: NodePlacement,
        heard: LatestReport | None,
        holding: NodeMarks,
        others: ParentIncidents,
        graced: frozenset[str],
    ) -> NodeSituation:
        uid = seat.uid
        outcomes, proofs = self.decisions.get(uid, ()), self._proofs.get(uid, {})
        return NodeSituation(seat, heard, outcomes, holding, proofs, others, self._granted, graced)

    def _keep(self, uid: str, after: Mapping[str, Incident], most: int, now: float) -> dict[str, Incident]:
        """Keep the incidents of a node for which there is room. Returns these."""
        before = self.incidents.get(uid, {})
        others = self._count - len(before)
        room = min(most, len(before) + max(0, self.max_total - self._count))
        fewer = min(limit_without_mark(most), limit_without_mark(self.max_total) - others)
        kept, left_out = limit_incidents(before, after, room, fewer, now)
        self.left_out_total += len(left_out.keys() - self.left_out.get(uid, frozenset()))
        self._set_left_out(uid, left_out)
        self._count += len(kept) - len(before)
        if kept:
            self.incidents[uid] = kept
        else:
            self.incidents.pop(uid, None)
        return kept

    def _set_left_out(self, uid: str, incidents: Mapping[str, Incident]) -> None:
        if incidents:
            self.left_out[uid] = frozenset(incidents)
        else:
            self.left_out.pop(uid, None)
        if any(map(asks_for_mark, incidents.values())):
            self._short_of_room.add(uid)
        else:
            self._short_of_room.discard(uid)

    def _orphaned(self, uid: str, now: float) -> list[Incident]:
        """The incidents of a Node that is no more, which are over with it."""
        if uid in self._roster.nodes:
            return []
        told = self.incidents.get(uid, {})
        over = [resolve(one, now, "its Node is gone") for one in told.values() if one.is_open]
        told.update((one.name, one) for one in over)
        return over

    def update_shared(self, found: Iterable[Incident], now: Instant) -> IncidentChanges:
        """Return the same of domains and checks: these are, and others that were are over."""
        before = self.incidents.get(SHARED, {})
        after = {one.name: update_incident(before.get(one.name), one, now.wall) for one in found}
        for name, past in before.items():
            if name not in after:
                after[name] = resolve(past, now.wall) if past.is_open else past
        after = self._keep(SHARED, after, MAX_SHARED, now.wall)
        changed = [one for name, one in after.items() if one is not before.get(name)]
        events = (event_of(before.get(one.name), one) for one in changed)
        return IncidentChanges(changed, [one for one in events if one is not None])


def _is_remembered(one: Incident, now: float) -> bool:
    return one.is_open or now - one.resolved_at < _REMEMBERED
