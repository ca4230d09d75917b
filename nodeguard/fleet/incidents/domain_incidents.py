"""Incidents with a shared cause: degraded domains, suppressed checks and jobs, and node faults they explain.

One incident for each cause. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from hashlib import blake2b
from math import inf

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.decide.domain_marks import DomainMarks
from nodeguard.fleet.decide.mark_requests import resource
from nodeguard.fleet.decide.observed_marks import PlanObservation
from nodeguard.fleet.diagnosis.messages import fault_class_named, suppressed_message, suppression_effect
from nodeguard.fleet.diagnosis.results import CHECK, DegradedDomain, SuppressedCheck
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.fleet.incidents.job_incidents import hit_jobs, job_incident, job_resource, shared_incident
from nodeguard.fleet.incidents.parent_incidents import ParentIncidents, Subject
from nodeguard.fleet.incidents.tracker import IncidentChanges, IncidentTracker
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Confinement, DiagnosisRecord, Incident, IncidentState, Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy

_SYMPTOMS = 8

# Returns the symptom of a node, by its uid and by fault classes; None if the node has no such symptom.
FindSymptom = Callable[[str, tuple[str, ...]], Symptom | None]


class SharedIncidents:
    """Incidents of degraded domains and suppressed checks, and the findings of nodes that they explain."""

    def __init__(self, votes: VoteCollector, domain_marks: DomainMarks) -> None:
        self._votes = votes
        self._domain_marks = domain_marks
        # What explained the findings of nodes at the latest `follow_diagnosis`.
        self._explaining = votes.diagnosis.explaining
        self._explaining_jobs: dict[tuple[str, str], str] = {}
        self._parents: dict[str, tuple[NodePlacement, LatestReport, ParentIncidents]] = {}
        # The jobs of each incident's nodes, with these nodes and the version of the jobs.
        self._jobs: dict[str, tuple[tuple[str, ...], int, tuple[tuple[str, ...], int]]] = {}

    def follow_diagnosis(self, tracker: IncidentTracker) -> None:
        """Have a tracker evaluate the nodes again of which the diagnosis may explain other findings."""
        diagnosis = self._votes.diagnosis
        explaining, jobs = diagnosis.explaining, diagnosis.jobs.explaining_jobs()
        if explaining != self._explaining:
            self._parents.clear()
            tracker.touch_all()
        for (_, uid), _ in jobs.items() ^ self._explaining_jobs.items():
            self._parents.pop(uid, None)
            tracker.touch(uid)
        self._explaining, self._explaining_jobs = explaining, jobs

    def update(
        self,
        tracker: IncidentTracker,
        policy: Policy,
        observation: PlanObservation,
        marked: Set[str],
        decisions: list[MarkDecision],
        deferred: Set[str],
        now: Instant,
    ) -> IncidentChanges:
        """Update all incidents in a tracker, from the decisions of a plan. Returns the changes.

        observation: of the plan. marked: uids of the nodes with a planned or observed mark. deferred: uids of
        nodes with a mark that a later plan issues; their incidents change with it.
        """
        nodes = tracker.update_nodes(
            policy,
            observation,
            marked,
            decisions,
            deferred,
            lambda node, report: self.parents(policy, node, report, now),
            now,
        )
        shared = tracker.update_shared(self.incidents(now), observation, now)
        changed, events = [*nodes.changed, *shared.changed], [*nodes.events, *shared.events]
        return IncidentChanges(changed, events, nodes.transient)

    def incidents(self, now: Instant) -> Iterator[Incident]:
        """Yield the incidents of degraded domains, of suppressed checks, and of bad starts of jobs."""
        diagnosis = self._votes.diagnosis
        if not (self._domain_marks.decisions or diagnosis.suppressed_checks):
            self._jobs.clear()
        for decision in self._domain_marks.decisions.values():
            degraded = decision.degraded
            members = self._votes.domain_members.nodes(degraded.domain) | set(degraded.moved)
            incident = domain_incident(decision, members, self._votes.symptom, now, self._action(degraded))
            yield self._with_jobs(incident, degraded.voters)
        for suppressed in diagnosis.suppressed_checks.values():
            is_fact = self._votes.evidence.is_fact(suppressed.check, suppressed.nodes)
            incident = check_incident(suppressed, self._votes.symptom, now, is_fact=is_fact)
            yield self._with_jobs(incident, suppressed.nodes)
        for start in diagnosis.bad_starts.values():
            name = shared_incident_name(job_resource(start.job))
            incident = job_incident(name, start, diagnosis.rule, now)
            yield _with_symptoms(incident, start.voters, (start.fault_class,), self._votes.symptom)

    def _action(self, degraded: DegradedDomain) -> Action:
        """Return the action on the nodes of a degraded domain, by its fault class."""
        fault_class = fault_class_named(self._votes.diagnosis.rule, degraded.fault_classes)
        return fault_class.action if fault_class is not None else Action.NONE

    def _with_jobs(self, incident: Incident, uids: tuple[str, ...]) -> Incident:
        """Return an incident with the jobs of its nodes, which are read again only after a change."""
        nodes, version, jobs = self._jobs.get(incident.name, ((), -1, ((), 0)))
        if nodes is not uids or version != self._votes.jobs.version:
            jobs = hit_jobs(uids, self._votes.jobs)
            self._jobs[incident.name] = uids, self._votes.jobs.version, jobs
        names, omitted = jobs
        return replace(incident, jobs=names, jobs_omitted=omitted)

    def parents(
        self, policy: Policy, placement: NodePlacement, report: LatestReport, now: Instant
    ) -> ParentIncidents:
        """Return which of a node's findings the incidents of domains and checks explain."""
        cached = self._parents.get(placement.uid)
        if cached is not None and cached[0] is placement and cached[1] is report:
            return cached[2]
        checks = self._votes.diagnosis.checks
        names: dict[str, set[str]] = {}
        suppressed = set[str]()
        ends: dict[Subject, float] = {}
        topologies = {path.removeprefix(DOMAIN).partition("/")[0] for path in placement.domains}
        for finding, began, injected in report.faults():
            failed = resource(finding)
            if not injected:
                name = self.parent_incident(placement.uid, finding.check, began, now)
                names.setdefault(failed, set()).add(name)
                if checks.suppression(finding.check, placement.uid) is not None:
                    suppressed.add(finding.check)
            end = began + policy.grace.shared
            is_early = now.wall < end and not topologies.isdisjoint(finding.topologies)
            ends[failed, injected] = min(end if is_early else 0.0, ends.get((failed, injected), inf))
        # A fault that several incidents explain, or one in part, has an incident of its own.
        parents = {failed: name for failed, (name, *others) in names.items() if name and not others}
        early = {subject: end for subject, end in ends.items() if end}
        parent_incidents = ParentIncidents(parents, early, suppressed)
        if not parent_incidents.early:
            # An early fault changes with time only.
            self._parents[placement.uid] = placement, report, parent_incidents
        return parent_incidents

    def parent_incident(self, uid: str, check: str, since: float, now: Instant) -> str:
        """Return the name of the incident that explains a check's finding on a node; empty for none."""
        diagnosis = self._votes.diagnosis
        if diagnosis.checks.suppression(check, uid):
            return shared_incident_name(f"{CHECK}{check}")
        for degraded in diagnosis.degraded_domains.values():
            marks = self._domain_marks
            if marks.has_node(degraded, uid) and marks.explains(degraded, check, since, now):
                return shared_incident_name(degraded.name)
        job = diagnosis.jobs.explaining_job(check, uid)
        return shared_incident_name(job_resource(job)) if job else ""


def domain_incident(
    decision: DomainDecision,
    members: Set[str],
    find_symptom: FindSymptom,
    now: Instant,
    action: Action = Action.NONE,
) -> Incident:
    """Return the incident of a degraded domain, without the state of an earlier one. members: all of its
    nodes, including those that may not vote. action: on its nodes.
    """
    degraded, reason = decision.degraded, decision.reason
    scope = f"{len(members)} nodes of {degraded.domain}"
    # A domain from before this start has no votes: its nodes that show the fault now are the symptoms.
    classes = degraded.fault_classes
    voters = degraded.voters or [uid for uid in sorted(members) if find_symptom(uid, classes)]
    if decision.state == IncidentState.DRY_RUN:
        effect = Mark.DOMAIN_DEGRADED.kind.effect.format(scope)
        reason = f"would not {effect}: {reason}" if reason else f"would {effect}"
    ends = f"ends when {decision.clears_when}" if decision.clears_when else ""
    incident = shared_incident(
        name=shared_incident_name(degraded.name),
        target=degraded.name,
        cause=degraded.fault_classes[0] if degraded.fault_classes else Mark.DOMAIN_DEGRADED,
        health=Health.SUSPECT,
        state=decision.state,
        first_seen=now.wall_of(degraded.began),
        domain=degraded.domain,
        scope=scope,
        fault_class=degraded.topology,
        action=action,
        message=decision.evidence,
        detail="; ".join(filter(None, (reason, ends))),
        diagnosis=DiagnosisRecord(
            degraded.fault_classes,
            recovering_since=_wall(degraded.recovering_since, now),
            first_vote=now.wall_of(degraded.began),
        ),
        write=decision.write,
        owner=decision.owner,
    )
    return _with_symptoms(incident, voters, classes, find_symptom)


def check_incident(
    suppressed: SuppressedCheck, find_symptom: FindSymptom, now: Instant, *, is_fact: bool
) -> Incident:
    """Return the incident of a suppressed check. is_fact: whether it finds facts."""
    confinement = None
    if suppressed.confined_at is not None:
        confinement = Confinement(now.wall_of(suppressed.confined_at), suppressed.size)
    incident = shared_incident(
        name=shared_incident_name(f"{CHECK}{suppressed.check}"),
        target=f"{CHECK}{suppressed.check}",
        cause=suppressed.check,
        health=Health.WARNING,
        state=IncidentState.OPEN,
        first_seen=now.wall_of(suppressed.began),
        fault_class="held",
        component=suppressed.domain,
        action=Action.MONITOR,
        message=f"check {suppressed.check} is suppressed: {suppressed_message(suppressed)}",
        detail=suppression_effect(suppressed, is_fact=is_fact),
        confinement=confinement,
        diagnosis=DiagnosisRecord(
            window=suppressed.within,
            nodes=suppressed.size,
            recovering_since=_wall(suppressed.recovering_since, now),
        ),
    )
    return _with_symptoms(incident, suppressed.nodes, (), find_symptom)


def _wall(at: float | None, now: Instant) -> float:
    """Return a time of the monotonic clock in seconds since the epoch; 0 for None."""
    return 0.0 if at is None else now.wall_of(at)


def shared_incident_name(cause: str) -> str:
    """Return the name of the incident of a domain or a check, which depends only on the cause."""
    readable = re.sub(r"[^a-z0-9-]+", "-", cause[:200].lower()).strip("-")
    return f"{readable}-{blake2b(cause.encode(), digest_size=4).hexdigest()}"


def _with_symptoms(
    incident: Incident, uids: Sequence[str], fault_classes: tuple[str, ...], find_symptom: FindSymptom
) -> Incident:
    """Return an incident with the symptoms of its first nodes, and the number of the further ones."""
    symptoms = list[Symptom]()
    examined = 0
    for uid in uids:
        if len(symptoms) == _SYMPTOMS:
            break
        examined += 1
        symptom = find_symptom(uid, fault_classes)
        if symptom is not None:
            symptoms.append(symptom)
    return replace(incident, symptoms=tuple(symptoms), symptoms_omitted=len(uids) - examined)
