"""The view of nodeguard describe incident. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.results import JOB
from nodeguard.fleet_api.schema.incident import IncidentView, SymptomView
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.node import MarkView
from nodeguard.fleet_api.text.job import job_fields, rejected_pods_fields
from nodeguard.fleet_api.text.phrases import (
    check_name,
    guidance_section,
    mark_fields,
    mark_section,
    shared_subject_state,
    state_text,
    subject_text,
)
from nodeguard.fleet_api.text.wording import target_text, time_and_age
from nodeguard.fleet_api.view import Field, Note, Section, Subject, View, badge_heading, commands, see
from nodeguard.model.finding import Action
from nodeguard.model.incident import ClearAnswer, IncidentState
from nodeguard.model.mark import MARK_OF_HEALTH, Mark, mark_kind

_EFFECTS = {
    IncidentState.OPEN: "report only; no scheduling change",
    IncidentState.PENDING: "no scheduling change yet",
    IncidentState.DRY_RUN: "the {1} is not enforced",
    IncidentState.WITHHELD: "the mark is not applied",
    IncidentState.MARKED: "{0} is kept away",
    IncidentState.ADVISED: "advice: keep {0} away",
    IncidentState.RECOVERING: "recovered; the mark stays until the soak period ends",
    IncidentState.RESOLVED: "over",
}


def incident_view(incident: IncidentView, *, is_part: bool = False) -> View:
    """Return the view: what it is, with its own evidence and mark, and what to do; then its other marks, and
    its other symptoms with their evidence. is_part: whether it is part of the view of its node.
    """
    health = incident.health.value
    subjects = [Subject("incident", incident.name)] if is_part else _subjects(incident)
    own_marks = [mark for mark in incident.marks if _is_own(incident, mark)]
    own_symptoms = [symptom for symptom in incident.symptoms if _is_own_symptom(incident, symptom)]
    facts = (*_facts(incident, own_symptoms, own_marks), *([see(*subjects)] if subjects else ()))
    sections = [Section(badge_heading(health, health, _title(incident)), facts)]
    if incident.guidance is not None:
        sections.append(guidance_section(incident.guidance))
    sections += (mark_section(mark) for mark in incident.marks if mark not in own_marks)
    sections += _symptoms(incident, [symptom for symptom in incident.symptoms if symptom not in own_symptoms])
    if incident.symptoms_omitted:
        more = "more symptoms" if incident.node else "more nodes with a symptom"
        sections.append(Section(None, (Note(f"and {incident.symptoms_omitted} {more}"),)))
    return View(tuple(sections))


def _is_own(incident: IncidentView, part: MarkView | SymptomView) -> bool:
    """Return whether a mark or a symptom is for the cause of an incident, on the same part of its node."""
    return bool(incident.node) and (part.check, part.target) == (incident.cause, incident.resource)


def _is_own_symptom(incident: IncidentView, symptom: SymptomView) -> bool:
    """Return whether a symptom adds only evidence to its incident."""
    return (
        _is_own(incident, symptom)
        and symptom.health == incident.health
        and symptom.message in {"", incident.message}
    )


def _symptoms(incident: IncidentView, symptoms: Sequence[SymptomView]) -> Iterator[Section]:
    """Yield a section for each symptom, and one for what several nodes show alike, with their names."""
    alike: dict[SymptomView, list[str]] = {}
    for symptom in symptoms:
        node, target = _symptom_location(symptom.target)
        alike.setdefault(replace(symptom, target=target), []).append(node)
    for symptom, nodes in alike.items():
        fields = [*_symptom_fields(symptom, incident.message)]
        about = Subject("node", nodes[0]) if nodes[0] else None
        title = f"{symptom.check} - {f'{nodes[0]}, ' if nodes[0] else ''}{symptom.target}"
        if len(nodes) > 1:
            about, title = None, f"{symptom.check} - {symptom.target} of {len(nodes)} nodes"
            subjects = tuple(Subject("node", node) for node in nodes)
            fields.append(Field("nodes", ", ".join(nodes), subjects=subjects))
        health = symptom.health.value
        yield Section(badge_heading(health, health, title, about), tuple(fields))


def _symptom_fields(symptom: SymptomView, message: str) -> Iterator[Field]:
    """Yield what a symptom adds. message: of the incident."""
    if symptom.message and symptom.message != message:
        yield Field("message", symptom.message)
    for evidence in symptom.evidence:
        yield Field("evidence", evidence, "dim")
    if symptom.evidence_omitted:
        yield Field("", f"and {symptom.evidence_omitted} more", "dim")


def effect_text(incident: IncidentView | IncidentSummary) -> str:
    """Return what the state of an incident means for new work."""
    mark: str | None = Mark.DOMAIN_DEGRADED
    if not incident.domain:
        mark = incident.mark or MARK_OF_HEALTH.get(incident.health)
    work = mark_kind(mark).work if mark else "new work"
    return _EFFECTS[incident.state].format(work, "topology" if incident.domain else "check")


def _title(incident: IncidentView) -> str:
    if not incident.node:
        subject = subject_text(incident.node, incident.domain, incident.resource)
        state = shared_subject_state(incident.resource)
        return f"{incident.cause} - {subject}" if incident.domain else f"{subject} {state}"
    node = f"node {incident.node}"
    if incident.resource != "node":
        node = f"{target_text(incident.resource, incident.hardware)} of {incident.node}"
    return f"{check_name(incident.cause, injected=incident.injected)} - {node}"


def _clear_result(incident: IncidentView) -> str:
    """Return the outcome of a request to clear the incident, as far as it is known."""
    match incident.clear_result:
        case ClearAnswer.WAITING:
            return "; the node's agent has not answered yet"
        case ClearAnswer.DONE:
            return f"; done: {incident.clear_message}"
        case ClearAnswer.PARTLY:
            return f"; partly done: {incident.clear_message}"
        case ClearAnswer.REFUSED:
            return f"; refused: {incident.clear_message}"
    return ""


def _symptom_location(target: str) -> tuple[str, str]:
    """Return the node that is named before the target of a symptom, empty for that of the incident, and the
    target.
    """
    node, comma, rest = target.partition(", ")
    return (node, target_text(rest)) if comma else ("", target_text(target))


def _facts(
    incident: IncidentView, symptoms: Sequence[SymptomView], marks: Sequence[MarkView]
) -> Iterator[Field]:
    """Yield what the incident is, and what to do. symptoms, marks: its own."""
    if incident.message:
        yield Field("message", incident.message)
    yield from _state_facts(incident)
    if not incident.resource.startswith(JOB):
        yield from job_fields(incident.jobs, incident.jobs_omitted, incident.job_outcomes)
    yield from rejected_pods_fields(incident.rejected_pods)
    if incident.component:
        yield Field("component" if incident.node else "only with", incident.component)
    for symptom in symptoms:
        yield from _symptom_fields(symptom, incident.message)
    done = "advised" if incident.state == IncidentState.ADVISED else "set"
    for mark in marks:
        yield from mark_fields(mark, mark.mark, done)
    acts = incident.action != Action.NONE and incident.state != IncidentState.RESOLVED
    if acts and (incident.guidance is None or incident.domain):
        yield Field("action", incident.remedy or incident.action.phrase)
        yield from commands(incident.how)
    if incident.acknowledged:
        yield Field("ack", f"by {incident.acknowledged}")
    if incident.clear_request:
        yield Field("clear", f"requested by {incident.clear_request}{_clear_result(incident)}")
    if incident.false_alarm is not None:
        statement = "withdrawn" if incident.false_alarm.withdrawn else "recorded"
        yield Field("false alarm", f"{statement} by {incident.false_alarm.text}")


def _state_facts(incident: IncidentView) -> Iterator[Field]:
    reason = f": {incident.reason}" if incident.reason else ""
    state = state_text(incident.state, incident.until, incident.seconds_left)
    yield Field("state", f"{state}, {effect_text(incident)}{reason}")
    if incident.scope:
        yield Field("scope", incident.scope)
    yield Field("since", time_and_age(incident.since, incident.age))
    yield Field("changed", time_and_age(incident.last_transition, incident.last_transition_age))
    if incident.occurrences > 1:
        yield Field("opened", f"{incident.occurrences} times")


def _subjects(incident: IncidentView) -> list[Subject]:
    """Return the things with views that show more."""
    subjects = [Subject("node", incident.node)] if incident.node else []
    if incident.domain:
        subjects.append(Subject("domain", incident.domain))
    elif not incident.resource.startswith(JOB):
        subjects.append(Subject("check", incident.cause))
    if incident.component and not incident.node:
        subjects.append(Subject("domain", incident.component))
    return subjects
