"""Transitions of incidents, and the Events that are recorded on a Node for them. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.observed_marks import DomainRemoval
from nodeguard.fleet.diagnosis.results import JOB
from nodeguard.fleet.state.wall_clock import CLOCK_TOLERANCE
from nodeguard.model.finding import Action
from nodeguard.model.hardware import hardware_label
from nodeguard.model.incident import GRANTED_STATES, Confinement, DiagnosisRecord, Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.job import add_jobs, jobs_text
from nodeguard.model.mark import MARK_OF_HEALTH


class IncidentEvent(Struct, frozen=True):
    """An Event of Kubernetes about a node. warning: type Warning; else Normal. incident: the name of its
    incident; node and uid are empty for an incident of a domain or a check. ends: whether the incident is
    over.
    """

    uid: str
    node: str
    reason: str
    message: str
    warning: bool = True
    incident: str = ""
    ends: bool = False


# Reason of an Event, and whether it is a warning. A pending incident has none.
_REASONS = {
    IncidentState.OPEN: ("NodeguardFinding", True),
    IncidentState.DRY_RUN: ("NodeguardDryRun", True),
    IncidentState.WITHHELD: ("NodeguardWithheld", True),
    IncidentState.MARKED: ("NodeguardMarked", True),
    IncidentState.ADVISED: ("NodeguardAdvised", True),
    IncidentState.RECOVERING: ("NodeguardRecovering", False),
    IncidentState.RESOLVED: ("NodeguardResolved", False),
}


def _news(incident: Incident) -> tuple[object, ...]:
    """Return the fields with changes that cause an Event: also the reason of a withheld mark. The reason of a
    dry run causes none: it changes on many nodes at each restart and freeze.
    """
    is_withheld = incident.state == IncidentState.WITHHELD or _is_marked_too_weakly(incident)
    # The removal of a mark fails.
    is_kept = incident.state == IncidentState.RECOVERING and incident.write is not None
    reason = (incident.budget or incident.detail) if is_withheld or is_kept else ""
    return incident.state, incident.scope, incident.mark, reason


def _is_marked_too_weakly(incident: Incident) -> bool:
    """Return whether an incident has a lesser mark than its health requests, which is not set yet."""
    requested = MARK_OF_HEALTH.get(incident.health)
    return (
        incident.state in GRANTED_STATES and requested is not None and incident.mark in requested.kind.lesser
    )


def event_of(before: Incident | None, after: Incident) -> IncidentEvent | None:
    """Return the Event of an incident's change; None where only words changed, its health improved, or its
    parent has one.
    """
    if after.parent or after.state not in _REASONS:
        return None
    rose = before is not None and before.is_open and after.health.rank > before.health.rank
    if before is not None and _news(before) == _news(after) and not rose:
        return None
    reason, warning = _REASONS[after.state]
    # A message about a domain or a check names it.
    place = f"{after.cause} on {hardware_label(after.target, after.hardware)}: " if after.node else ""
    message = after.message or ("injected" if after.injected else "")
    fault = f"{message}; " if message else ""
    jobs = jobs_text(after.jobs, after.jobs_omitted)
    hit = f"; jobs: {jobs}" if jobs and not after.target.startswith(JOB) else ""
    rise = f"health changed from {before.health.value} to {after.health.value}; " if before and rose else ""
    refused = f"; {after.detail}" if _is_marked_too_weakly(after) and after.detail else ""
    message = f"{place}{fault}{rise}{_done(after)}{refused}{_to_do(after)}{hit} ({after.name})"
    return IncidentEvent(
        after.uid, after.node, reason, message[:1000], warning, after.name, ends=not after.is_open
    )


def _to_do(incident: Incident) -> str:
    """Return what people do about an incident, as the continuation of a sentence; empty for nothing, and
    while it is ending.
    """
    if incident.state in {IncidentState.RECOVERING, IncidentState.RESOLVED}:
        return ""
    if incident.owner:
        return f"; {incident.owner} acts"
    return f"; to do: {incident.action.phrase}" if incident.node and incident.action != Action.NONE else ""


def mark_message(incident: Incident) -> str:
    """Return which mark is set for an incident, or why none is, as a sentence."""
    text, detail = _done(incident), incident.detail
    match incident.state:
        case IncidentState.OPEN if incident.node:
            text = f"no mark: {detail}" if detail else "no mark is requested"
        case IncidentState.MARKED | IncidentState.ADVISED if detail:
            text = f"{text}; {detail}"
        case IncidentState.RECOVERING:
            text = f"{_work(incident)} is kept off {incident.scope}: {detail}"
        case IncidentState.RESOLVED:
            text = f"no mark: {text}"
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _work(incident: Incident) -> str:
    mark = incident.mark or MARK_OF_HEALTH.get(incident.health)
    return mark.kind.work if mark else "new gang work"


def _done(incident: Incident) -> str:
    """Return the action on an incident, as text."""
    work = _work(incident)
    match incident.state:
        case IncidentState.OPEN:
            return "no scheduling change" if incident.node else incident.detail
        case IncidentState.DRY_RUN:
            return f"dry run: {incident.detail}"
        case IncidentState.WITHHELD:
            return f"{incident.scope} {'is' if incident.node else 'are'} not marked: {incident.detail}"
        case IncidentState.MARKED:
            return f"{work} is kept off {incident.scope}"
        case IncidentState.ADVISED:
            return f"advice: keep {work} off {incident.scope}"
        case IncidentState.RECOVERING:
            return f"{incident.scope}: {incident.detail}"
    return incident.detail or "the fault is over"


def resolve(incident: Incident, now: float, detail: str = "") -> Incident:
    """Return an incident as resolved. now: seconds since the epoch."""
    return replace(
        incident,
        state=IncidentState.RESOLVED,
        last_transition=now,
        resolved_at=now,
        scope="",
        mark=None,
        detail=detail,
    )


def update_incident(before: Incident | None, now: Incident, wall: float) -> Incident:
    """Return the current incident with the data of the earlier one. wall: seconds since the epoch."""
    if before is None:
        return replace(now, last_transition=wall)
    if before.state == IncidentState.RESOLVED:
        return replace(now, last_transition=wall, occurrences=before.occurrences + 1)
    jobs, jobs_omitted = add_jobs((before.jobs, before.jobs_omitted), (now.jobs, now.jobs_omitted))
    record = _diagnosis_record(before.diagnosis, now.diagnosis)
    confinement = _confinement(before.confinement, now.confinement)
    updated = replace(
        now,
        first_seen=_first_seen(before, now),
        last_transition=before.last_transition,
        occurrences=before.occurrences,
        message=now.message or before.message,
        hardware=now.hardware or before.hardware,
        highest_health=before.worst_health if before.worst_health.rank > now.health.rank else None,
        jobs=jobs,
        jobs_omitted=jobs_omitted,
        diagnosis=record,
        confinement=confinement,
    )
    if _gist(updated) != _gist(before):
        is_transition = _transitions(updated) != _transitions(before)
        return replace(updated, last_transition=wall) if is_transition else updated
    # The jobs are read after the incident was opened, it may begin to recover, and a GPU may get another
    # index: that is no transition.
    is_same = record is before.diagnosis and confinement is before.confinement
    # An incident that was restored has no owner.
    is_same = is_same and (updated.hardware, updated.owner) == (before.hardware, before.owner)
    # Another number of nodes is no change, as their symptoms are none.
    is_same = is_same and (not now.node or updated.symptoms_omitted == before.symptoms_omitted)
    return before if is_same and (jobs, jobs_omitted) == (before.jobs, before.jobs_omitted) else updated


def _first_seen(before: Incident, now: Incident) -> float:
    """Return when an open incident was first seen. One that was found by its mark, before the report, has the
    time of the mark.
    """
    is_found_by_mark = bool(before.node and now.symptoms) and not before.symptoms
    return min(before.first_seen, now.first_seen) if is_found_by_mark else before.first_seen


def _diagnosis_record(before: DiagnosisRecord | None, now: DiagnosisRecord | None) -> DiagnosisRecord | None:
    """Return the current record, with the earlier times where only the clocks differ."""
    if before is None or now is None:
        return now
    record = replace(
        now,
        recovering_since=_recorded_time(before.recovering_since, now.recovering_since),
        first_vote=_recorded_time(before.first_vote, now.first_vote),
    )
    return before if record == before else record


def _confinement(before: Confinement | None, now: Confinement | None) -> Confinement | None:
    """Return the current confinement: the earlier one if only the clocks differ. After a jump of the wall
    clock the recorded time is that of the new clock, as the times of agents are.
    """
    if before is None or now is None:
        return now
    return before if _recorded_time(before.since, now.since) == before.since else now


def _recorded_time(before: float, now: float) -> float:
    """Return a time to record: the earlier record of it if only the clocks differ."""
    return before if abs(before - now) < CLOCK_TOLERANCE else now


def _transitions(incident: Incident) -> tuple[object, ...]:
    """Return the fields that only a transition changes: not the reason, which is unknown after each start."""
    return incident.state, incident.health, incident.cause, incident.action


def _gist(incident: Incident) -> tuple[object, ...]:
    symptoms = {(symptom.check, symptom.target, symptom.health) for symptom in incident.symptoms}
    reason = incident.budget or incident.detail
    # The symptoms of many nodes change all the time.
    return (
        incident.state,
        incident.health,
        incident.mark,
        incident.cause,
        incident.action,
        incident.scope,
        incident.component,
        reason,
        incident.parent,
        incident.confinement is None,
        frozenset(symptoms) if incident.node else None,
    )


def still_marked(past: Incident, removal: DomainRemoval, now: Instant) -> Incident:
    """Return the incident of a domain that has recovered, while its mark is still on some Nodes. It is
    recorded at once: an aggregator that starts meanwhile must not restore the domain as degraded.
    """
    scope, detail, problem = past.scope, "the mark is being removed", removal.problem
    if problem is not None:
        scope = f"{removal.nodes} {'node' if removal.nodes == 1 else 'nodes'} of {past.domain}"
        detail = f"the write that removes the mark {problem.message}"
    recovering = replace(
        past,
        state=IncidentState.RECOVERING,
        scope=scope,
        detail=f"the domain has recovered; {detail}",
        write=problem.state if problem is not None else None,
    )
    return update_incident(past, recovering, now.wall)
