"""The diagnosis of an earlier aggregator, restored from the recorded incidents.

A new aggregator continues with open diagnoses. It also restores when others ended, by recovery or by an
operator: the votes from before then do not count again, though agents still report their findings.

The kubelet of a Node can write any record on it, so no record makes a domain degraded. The marks on Nodes
only show which nodes of a domain with an incident got other labels, and which parts it replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.results import JOB, BadJobStart, DegradedDomain, SuppressedCheck
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.fleet.state.topology.members import is_within
from nodeguard.fleet.state.wall_clock import CLOCK_TOLERANCE
from nodeguard.model.diagnosis import STALE_CHECK
from nodeguard.model.incident import GRANTED_STATES, DiagnosisRecord, Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark, NodeMarks


class RestoredDiagnosis:
    """Restores the diagnosis into the votes and the diagnosis of a new aggregator, each cause once."""

    def __init__(self, votes: VoteCollector) -> None:
        self._votes = votes
        self._incidents: list[Incident] = []
        self._domains: set[str] = set()  # restored, or degraded since
        self._marked_domains: set[str] = set()
        # When the diagnosis of a domain ended, in seconds since the epoch.
        self._ended: dict[str, float] = {}

    def add_incidents(self, incidents: Iterable[Incident]) -> None:
        """Add the recorded incidents. Those of single nodes are ignored."""
        self._incidents += [incident for incident in incidents if not incident.node]

    def clear(self, incident: str, at: float) -> None:
        """Record that an operator cleared an incident that waits to be restored; others are ignored. at:
        seconds since the epoch; 0 if that is not recorded.
        """
        self._incidents = [
            replace(waiting, state=IncidentState.RESOLVED, resolved_at=at)
            if waiting.name == incident and waiting.is_open
            else waiting
            for waiting in self._incidents
        ]

    def restore(self, marks: Mapping[str, NodeMarks], now: Instant) -> None:
        """Restore what was added; nothing in later plans. marks: by uid."""
        if not self._incidents:
            return
        incidents, self._incidents = self._incidents, []
        opened = [incident for incident in incidents if not _has_ended(incident)]
        for incident in incidents:
            if _has_ended(incident):
                self._end(incident, now)
        recorded = list(degraded_marks(marks))
        domains = {incident.domain for incident in incidents if incident.domain}
        domains |= {incident.target for incident in incidents if incident.domain}
        supported = tuple((uid, mark) for uid, mark in recorded if {mark.name, mark.domain} & domains)
        degraded = {incident.domain for incident in opened}
        for incident in opened:
            result = self._result(incident, now)
            if isinstance(result, DegradedDomain):
                # A mark of a domain with an open incident of its own is of no other one.
                others = degraded - {result.domain}
                own = [(uid, mark) for uid, mark in supported if mark.domain not in others]
                result = self._with_marks(incident, result, own)
            self._votes.diagnosis.open(result)
        for uid in {uid for uid, _ in recorded}:
            self._votes.update_node(uid)

    def _with_marks(
        self, incident: Incident, degraded: DegradedDomain, marks: Collection[tuple[str, DegradedMark]]
    ) -> DegradedDomain:
        """Return the degraded domain of an incident with the nodes and domains that only marks name.

        marks: of domains with any incident, by uid.
        """
        domain, nodes = degraded.domain, self._votes.evidence.members.nodes(degraded.domain)
        replaced = tuple(dict.fromkeys(mark.domain for _, mark in marks if _is_replaced(mark, degraded)))
        moved = tuple(uid for uid, mark in marks if uid not in nodes and mark.domain == domain)
        stopped = (symptom.target for symptom in incident.symptoms if symptom.check == STALE_CHECK)
        self._votes.evidence.stopped.record_earlier(stopped)
        self._domains.add(domain)
        self._marked_domains.update(replaced)
        if incident.state in GRANTED_STATES:
            self._marked_domains.add(domain)
        return replace(degraded, replaced=replaced, moved=moved)

    def take_marked_domains(self) -> Set[str]:
        """Return the restored domains with marks that an incident supports, once."""
        domains, self._marked_domains = self._marked_domains, set()
        return domains

    def record_degraded(self) -> None:
        """Record which domains are degraded: their marks are over when they recover."""
        for domain, degraded in self._votes.diagnosis.degraded_domains.items():
            self._domains.update((domain, *degraded.replaced))

    def is_over(self, mark: DegradedMark) -> bool:
        """Return whether a mark is of a domain that recovered or was cleared, if it is not degraded now."""
        return mark.domain in self._domains or mark.since <= self._ended.get(mark.domain, 0.0)

    def _result(self, incident: Incident, now: Instant) -> DegradedDomain | SuppressedCheck | BadJobStart:
        """Return the diagnosis of an incident."""
        if incident.target.startswith(JOB):
            return self._bad_start(incident, now)
        return self._domain(incident, now) if incident.domain else _suppression(incident, now)

    def _domain(self, incident: Incident, now: Instant) -> DegradedDomain:
        """Return the degraded domain of an incident, without its voters."""
        record = incident.diagnosis or DiagnosisRecord()
        # The earlier aggregator moved the time of the first vote with its clock, but not the other two times.
        began = _mono(record.first_vote or incident.first_seen, now)
        since = _mono(record.recovering_since, now) if record.recovering_since else now.mono
        return DegradedDomain(
            incident.target,
            incident.domain,
            record.fault_classes or (incident.cause,),
            since,
            began,
            (),
            self._votes.diagnosis.members.size(incident.domain),
            times=incident.occurrences,
            restored=True,
        )

    def _bad_start(self, incident: Incident, now: Instant) -> BadJobStart:
        """Return the bad start of a job of an incident, without its voters."""
        record = incident.diagnosis or DiagnosisRecord()
        began = _mono(record.first_vote or incident.first_seen, now)
        since = now.mono - self._votes.diagnosis.rule.grace_period
        job = incident.target.removeprefix(JOB)
        return BadJobStart(job, incident.cause, since, began, began, began + record.window)

    def _end(self, incident: Incident, now: Instant) -> None:
        """Record the end of the diagnosis of an incident."""
        recovered = incident.last_transition if _has_recovered(incident) else 0.0
        ended = incident.resolved_at or recovered or now.wall
        if incident.domain:
            self._ended[incident.domain] = max(ended, self._ended.get(incident.domain, ended))
        self._votes.diagnosis.end(self._result(incident, now), _mono(ended + CLOCK_TOLERANCE, now))


def _has_ended(incident: Incident) -> bool:
    """Return whether the diagnosis of an incident has ended: the incident of a domain that has recovered is
    open until its mark is removed from all Nodes.
    """
    return not incident.is_open or _has_recovered(incident)


def _has_recovered(incident: Incident) -> bool:
    return incident.domain != "" and incident.state == IncidentState.RECOVERING


def _is_replaced(mark: DegradedMark, degraded: DegradedDomain) -> bool:
    """Return whether a mark is of a domain that a degraded domain replaced: a part of it, or a parent that
    recovered except for it.
    """
    is_related = mark.domain != degraded.domain and (
        is_within(mark.domain, degraded.domain) or is_within(degraded.domain, mark.domain)
    )
    return is_related and not set(mark.fault_classes).isdisjoint(degraded.fault_classes)


def degraded_marks(marks: Mapping[str, NodeMarks]) -> Iterator[tuple[str, DegradedMark]]:
    """Yield the domain marks of some nodes, with the uid of each."""
    for uid, node_marks in marks.items():
        for degraded in node_marks.node.degraded:
            yield uid, degraded


def _suppression(incident: Incident, now: Instant) -> SuppressedCheck:
    """Return the suppressed check of an incident."""
    record, confinement = incident.diagnosis or DiagnosisRecord(), incident.confinement
    return SuppressedCheck(
        incident.cause,
        _mono(record.recovering_since, now) if record.recovering_since else now.mono,
        _mono(incident.first_seen, now),
        (),
        0,
        record.window,
        domain=incident.component,
        times=incident.occurrences,
        confined_at=_mono(confinement.since, now) if confinement is not None else None,
        restored_size=confinement.nodes if confinement is not None else record.nodes,
    )


def _mono(at: float, now: Instant) -> float:
    """Return a past time in seconds of the monotonic clock. at: in seconds since the epoch."""
    return min(now.mono, now.mono_of(at))
