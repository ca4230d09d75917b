"""Domains in the plan: what their Nodes carry, and what that stands in for. No input, output or clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.domain_decision import (
    ActiveDomainMarks,
    DomainContext,
    DomainDecision,
    decide_domains,
)
from nodeguard.fleet.decide.mark_requests import MarkRequest, resource
from nodeguard.fleet.decide.release import ReleasedMark, without_causes
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.fleet.incidents.domain_incidents import (
    CHECK,
    check_incident,
    domain_incident,
    shared_incident_name,
)
from nodeguard.fleet.incidents.node_incidents import ParentIncidents
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_marks import NodeMarks
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark, MarkCause
from nodeguard.model.policy import Policy

# Seconds before the first vote in which a node's own mark may have been set for the same cause.
_BEFORE = 600.0


class DomainMarks:
    """What becomes of the domains that are to blame. covers: by domain, as of the latest plan. epoch:
    rises whenever another thing is blamed or held.
    """

    def __init__(self, witness: VoteCollector) -> None:
        self.decisions: dict[str, DomainDecision] = {}
        self.epoch = 0
        self._witness = witness
        self._known: set[str] = set()
        self._shared: dict[str, tuple[NodePlacement, LatestReport, ParentIncidents]] = {}

    def invalidate(self) -> None:
        """Another thing is blamed or held than before."""
        self.epoch += 1
        self._shared.clear()

    def restore(self, holdings: Mapping[str, NodeMarks], told: Iterable[Incident], now: Instant) -> None:
        """Domains that were marked, or told of, before this planner was; checks that were held, too."""
        before = {
            one.domain: (one.name or one.domain, one.fault_classes, one.since)
            for _, one in _degraded(holdings)
        }
        for each in told:
            if each.domain and each.is_open:
                before.setdefault(each.domain, (each.target, (each.cause,), each.first_seen))
            elif each.is_open and each.target not in self._known:
                self._known.add(each.target)
                self._witness.diagnosis.restore_suppression(each.cause, each.component, now.mono)
        for domain, (name, kinds, since) in before.items():
            if domain not in self._known:
                self._known.add(domain)
                began = now.mono - max(0.0, now.wall - since)
                self._witness.diagnosis.restore_domain(domain, name, kinds, began, now.mono)

    def incidents(self, rule: DiagnosisPolicy, now: Instant) -> Iterator[Incident]:
        """What is to be told of domains, and of checks that are held."""
        for cover in self.decisions.values():
            members = self._witness.domain_members.size(cover.degraded.domain)
            yield domain_incident(cover, members, rule, self._witness.symptom, now)
        for held in self._witness.diagnosis.suppressed_checks.values():
            yield check_incident(held, self._witness.symptom, now)

    def decide(
        self,
        terms: DomainContext,
        seats: Mapping[str, NodePlacement],
        holdings: Mapping[str, NodeMarks],
        now: Instant,
    ) -> dict[str, NodeMarks]:
        """What nodes are to hold that is not as it was: all of a domain that is marked, or is no more."""
        blamed = self._witness.diagnosis.degraded_domains
        self._known |= blamed.keys() | {
            f"{CHECK}{check}" for check in self._witness.diagnosis.suppressed_checks
        }
        standing = ActiveDomainMarks.of(_degraded(holdings))
        if not (blamed or standing.nodes):
            self.decisions = {}
            return {}
        everyone = self._witness.domain_members
        members = {domain: everyone.nodes(domain) for domain in blamed}
        already = tuple(one for one in self.decisions.values() if one.granted_at)
        covers = decide_domains(blamed.values(), standing, members, terms, now, already)
        self.decisions = {one.degraded.domain: one for one in covers}
        wanted: dict[str, list[DegradedMark]] = {}
        for cover in covers:
            if cover.mark is not None:
                for uid in everyone.nodes(cover.mark.domain):
                    if cover.grows or cover.mark in holdings.get(uid, _NOTHING).node.degraded:
                        wanted.setdefault(uid, []).append(cover.mark)
        changed = {}
        for uid in wanted.keys() | standing.nodes:
            seat, had = seats.get(uid), holdings.get(uid, _NOTHING)
            if seat is None or seat.hold:
                continue
            marks = tuple(sorted(wanted.get(uid, ()), key=lambda one: (one.since, one.domain)))
            if terms.restraint:
                marks = tuple(one for one in marks if one in had.node.degraded)
            if marks != had.node.degraded:
                changed[uid] = replace(had, node=replace(had.node, degraded=marks))
        return changed

    def supersede(
        self, policy: Policy, roster: FleetState, holdings: dict[str, NodeMarks], now: Instant
    ) -> list[tuple[str, ReleasedMark]]:
        """Take from what nodes hold what the mark of a domain covers, once it is written there. Returns what
        that was, by uid.
        """
        freed: list[tuple[str, ReleasedMark]] = []
        for uid, holding in list(holdings.items()) if self.decisions else ():
            seat = roster.placements.get(uid)
            if seat is None or seat.hold or not holding.node.causes:
                continue
            seen, told = roster.observed_marks(uid), self._witness.onset_times(uid)
            # By when it began, as what is asked for is: of what the node does not tell, that is not known.
            gone = [
                one
                for one in holding.node.causes
                if (began := told.get((one.check, one.target))) is not None
                and self._stands_in(seen, one.check, began, now)
            ]
            if gone:
                left = tuple(one for one in holding.node.causes if all(one is not other for other in gone))
                record = replace(holding.node, causes=left)
                holdings[uid] = without_causes(holding, None, record, policy.soak, now.wall)
                freed += [(uid, ReleasedMark(one, "superseded")) for one in gone]
        return freed

    def unexplained_requests(
        self, wants: Iterable[MarkRequest], holdings: Mapping[str, NodeMarks], now: Instant
    ) -> tuple[list[MarkRequest], list[MarkDecision]]:
        """Wants, but for those that the mark of a domain stands in for, of which it is said what becomes."""
        if not self.decisions:
            return list(wants), []
        asked, folded = [], []
        for want in wants:
            domain = self._stands_in(holdings.get(want.uid, _NOTHING), want.check, want.since, now)
            if domain:
                folded.append(
                    MarkDecision(want, IncidentState.OPEN, f"told of as {domain}, which is degraded")
                )
            else:
                asked.append(want)
        return asked, folded

    def _stands_in(self, holding: NodeMarks, check: str, since: float, now: Instant) -> str:
        """The domain whose mark on a node is for what a check found since a moment; empty for none."""
        for one in holding.node.degraded:
            blamed = self._witness.diagnosis.degraded_domains.get(one.domain)
            if blamed is None or not self._witness.diagnosis.has_fault_class(check, blamed.fault_classes):
                continue
            began = now.wall - (now.mono - blamed.began)
            if blamed.restored or since >= began - _BEFORE:
                return one.domain
        return ""

    def shared(
        self, policy: Policy, seat: NodePlacement, heard: LatestReport, now: Instant
    ) -> ParentIncidents:
        """What of a node's findings is told by the incidents of domains and checks."""
        before = self._shared.get(seat.uid)
        if before is not None and before[0] is seat and before[1] is heard:
            return before[2]
        parents: dict[str, set[str]] = {}
        early: dict[str, bool] = {}
        views = {path.removeprefix(DOMAIN).partition("/")[0] for path in seat.domains}
        for one, began in zip(heard.findings, heard.began, strict=True):
            place = resource(one)
            parents.setdefault(place, set()).add(self.parent_incident(seat.uid, one.check, began, now))
            young = now.wall - began < policy.grace.shared and not views.isdisjoint(one.topologies)
            early[place] = early.get(place, True) and young
        # What one part shows may be told in several places, or in part: then it is told for itself.
        alone = {place: name for place, (name, *others) in parents.items() if name and not others}
        found = ParentIncidents(alone, frozenset(place for place, young in early.items() if young))
        if not found.early:
            # What is early is so no more some time later.
            self._shared[seat.uid] = seat, heard, found
        return found

    def parent_incident(self, uid: str, check: str, since: float, now: Instant) -> str:
        """Name of the incident that tells of what a check found on a node; empty for none."""
        diagnosis = self._witness.diagnosis
        if diagnosis.suppression(check, uid):
            return shared_incident_name(f"{CHECK}{check}")
        for domain, blamed in diagnosis.degraded_domains.items():
            began = now.wall - (now.mono - blamed.began)
            if (
                uid in self._witness.domain_members.nodes(domain)
                and diagnosis.has_fault_class(check, blamed.fault_classes)
                and (blamed.restored or since >= began - _BEFORE)
            ):
                return shared_incident_name(blamed.name)
        return ""

    def is_retracted(self, cause: MarkCause, uid: str) -> bool:
        """Whether a mark is to be given back, because its check is held and nothing else bears it out."""
        witness = self._witness
        return witness.diagnosis.suppression(cause.check, uid) is not None and not witness.is_confirmed(
            uid, cause.check
        )


def _degraded(holdings: Mapping[str, NodeMarks]) -> Iterator[tuple[str, DegradedMark]]:
    for uid, holding in holdings.items():
        for one in holding.node.degraded:
            yield uid, one


_NOTHING = NodeMarks()
