"""Projection of an incident to the status of its NodeIncident object, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from msgspec import to_builtins
from msgspec.structs import asdict

from nodeguard.fleet.incidents.events import mark_message
from nodeguard.kube.incident_object import (
    MAX_DETAIL,
    MAX_EVIDENCE,
    MAX_FAULT_CLASSES,
    MAX_JOBS,
    MAX_LINE,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_SYMPTOMS,
    ConfinementStatus,
    DiagnosisStatus,
    HardwareStatus,
    IncidentStatus,
    ObservedIncident,
    StatusCondition,
    SymptomStatus,
)
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import (
    GRANTED_STATES,
    Confinement,
    DiagnosisRecord,
    Incident,
    IncidentState,
    Symptom,
    WriteState,
)
from nodeguard.model.instant import parse_or_zero, rfc3339
from nodeguard.model.mark import Mark
from nodeguard.model.projection import project

# Fields with a name of limited length.
_NAMES = ("node", "domain", "target", "scope", "component", "cause", "fault_class", "parent", "budget")

# States in which the mark is set.
_MARKED_STATES = frozenset({*GRANTED_STATES, IncidentState.RECOVERING})


def incident_status(incident: Incident) -> IncidentStatus:
    """Return the status that the object of an incident should have."""
    return project(
        IncidentStatus,
        incident,
        subject=(incident.domain or incident.node or incident.target)[:MAX_NAME],
        node_uid=incident.uid[:MAX_NAME],
        **{name: getattr(incident, name)[:MAX_NAME] for name in _NAMES},
        message=incident.message[:MAX_MESSAGE],
        detail=incident.detail[:MAX_DETAIL],
        symptoms=tuple(_symptoms(incident.symptoms)),
        symptoms_omitted=incident.symptoms_omitted + max(0, len(incident.symptoms) - MAX_SYMPTOMS),
        first_seen=rfc3339(incident.first_seen),
        last_transition_time=rfc3339(incident.last_transition),
        resolved_at=rfc3339(incident.resolved_at) if incident.resolved_at else "",
        mark=incident.mark or "",
        highest_health=incident.highest_health or "",
        confinement=_confinement(incident.confinement),
        diagnosis=_diagnosis(incident.diagnosis),
        jobs=tuple(job[:MAX_NAME] for job in incident.jobs[:MAX_JOBS]),
        hardware=_hardware(incident.hardware),
        conditions=tuple(_conditions(incident)),
    )


def to_incident(observed: ObservedIncident) -> Incident | None:
    """Return the incident that an object describes; None if it has no status yet, or one without health or
    state. A cluster may refuse values of other fields, see `stored_fields`.
    """
    status = observed.status
    try:
        return project(
            Incident,
            status,
            name=observed.name,
            uid=status.node_uid,
            health=Health(status.health),
            state=IncidentState(status.state),
            first_seen=parse_or_zero(status.first_seen),
            last_transition=parse_or_zero(status.last_transition_time),
            action=Action(status.action or Action.NONE),
            symptoms=tuple(map(_to_symptom, status.symptoms)),
            resolved_at=parse_or_zero(status.resolved_at),
            mark=Mark(status.mark) if status.mark else None,
            highest_health=Health(status.highest_health) if status.highest_health else None,
            confinement=_to_confinement(status.confinement),
            diagnosis=_to_diagnosis(status.diagnosis),
            hardware=_to_hardware(status.hardware),
            write=_to_write(status.conditions),
        )
    except ValueError:
        return None


def _to_symptom(symptom: SymptomStatus) -> Symptom:
    """Return the symptom of an incident. Raises ValueError for an unknown health."""
    return project(Symptom, symptom, health=Health(symptom.health or Health.OK))


def _hardware(hardware: Hardware | None) -> HardwareStatus | None:
    """Return the known names within their limits."""
    if hardware is None:
        return None
    limited = hardware.limited(lambda name: name[:MAX_NAME])
    return HardwareStatus(**to_builtins(limited))


def _to_hardware(hardware: HardwareStatus | None) -> Hardware | None:
    if hardware is None:
        return None
    return Hardware(**{name: value for name, value in asdict(hardware).items() if value is not None})


def _confinement(confinement: Confinement | None) -> ConfinementStatus | None:
    if confinement is None:
        return None
    # A timestamp has seconds: the next one, so that it does not exclude a node.
    return ConfinementStatus(rfc3339(ceil(confinement.since)), confinement.nodes)


def _to_confinement(confinement: ConfinementStatus | None) -> Confinement | None:
    since = parse_or_zero(confinement.since) if confinement is not None else 0.0
    return Confinement(since, confinement.nodes) if confinement is not None and since else None


def _diagnosis(record: DiagnosisRecord | None) -> DiagnosisStatus | None:
    if record is None:
        return None
    names = tuple(name[:MAX_NAME] for name in record.fault_classes[:MAX_FAULT_CLASSES])
    since = rfc3339(record.recovering_since) if record.recovering_since else None
    first = rfc3339(record.first_vote) if record.first_vote else None
    return DiagnosisStatus(names, round(record.window), record.nodes, since, first)


def _to_diagnosis(record: DiagnosisStatus | None) -> DiagnosisRecord | None:
    if record is None:
        return None
    since, first = parse_or_zero(record.recovering_since or ""), parse_or_zero(record.first_vote or "")
    return DiagnosisRecord(record.fault_classes, float(record.window_seconds), record.nodes, since, first)


def _conditions(incident: Incident) -> Iterable[StatusCondition]:
    reason, marked_reason = incident.state.value, (incident.write or incident.state).value
    active_since = incident.first_seen if incident.is_open else incident.resolved_at
    is_marked = incident.state in _MARKED_STATES
    message, mark = incident.message[:MAX_MESSAGE], mark_message(incident)[:MAX_MESSAGE]
    yield StatusCondition("Active", _truth(incident.is_open), reason, rfc3339(active_since), message)
    yield StatusCondition("Marked", _truth(is_marked), marked_reason, rfc3339(incident.last_transition), mark)


def _to_write(conditions: Iterable[StatusCondition]) -> WriteState | None:
    """Return why a mark is not as the state says, which is the reason of a condition."""
    reasons = {condition.reason for condition in conditions}
    return next((state for state in WriteState if state in reasons), None)


def _truth(value: bool) -> str:  # noqa: FBT001 - a condition's status
    return "True" if value else "False"


def _symptoms(symptoms: Iterable[Symptom]) -> Iterable[SymptomStatus]:
    for symptom, _ in zip(symptoms, range(MAX_SYMPTOMS), strict=False):
        evidence = tuple(line[:MAX_LINE] for line in symptom.evidence[:MAX_EVIDENCE])
        yield SymptomStatus(
            symptom.check[:MAX_NAME],
            symptom.target[:MAX_NAME],
            symptom.health,
            symptom.message[:MAX_LINE],
            evidence,
            symptom.evidence_omitted + len(symptom.evidence) - len(evidence),
        )
