"""NodeIncident objects: `spec` is written by operators, `status` by nodeguard. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from nodeguard.fleet.incidents.events import mark_message
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import (
    GRANTED_STATES,
    Confinement,
    DiagnosisRecord,
    Incident,
    IncidentState,
    OperatorDecision,
    Symptom,
)
from nodeguard.model.instant import parse_or_zero, rfc3339
from nodeguard.model.mark import Mark

VERSION = "v1alpha1"
API_VERSION = f"nodeguard.dev/{VERSION}"
KIND = "NodeIncident"

# Limits of an object, in characters and in items, far below those of a cluster.
MAX_NAME = 256
MAX_MESSAGE = 1024
MAX_DETAIL = 4096
MAX_SYMPTOMS = 20
MAX_EVIDENCE = 5
MAX_LINE = 512
MAX_JOBS = 16
MAX_FAULT_CLASSES = 32
MAX_CONDITIONS = 8


# The types of fields, with the keywords of the CustomResourceDefinition. Decoding ignores these: an object
# that another version wrote within wider limits is valid.
def _schema(**keywords: Any) -> Meta:
    return Meta(extra_json_schema=keywords)


_Name = Annotated[str, _schema(maxLength=MAX_NAME)]
_Line = Annotated[str, _schema(maxLength=MAX_LINE)]
_Message = Annotated[str, _schema(maxLength=MAX_MESSAGE)]
_Time = Annotated[str, _schema(format="date-time")]
_Count = Annotated[int, _schema(minimum=0)]
_Generation = Annotated[int, _schema(minimum=0, format="int64")]
_Health = Annotated[str, _schema(enum=[*Health])]
_Action = Annotated[str, _schema(enum=[*Action])]
_Mark = Annotated[str, _schema(enum=[*Mark])]

# An incident in its grace period is not recorded, and `Advised` is the state without a cluster.
_UNWRITTEN_STATES: Final = frozenset({IncidentState.PENDING, IncidentState.ADVISED})
_State = Annotated[str, _schema(enum=[state for state in IncidentState if state not in _UNWRITTEN_STATES])]

# An operator's text: one line.
_NoteKeywords: Final = {"maxLength": MAX_NAME, "pattern": r"^[^\x00-\x1f\x7f]*$"}

# States in which the mark is set.
_MARKED_STATES = frozenset({*GRANTED_STATES, IncidentState.RECOVERING})


class _Symptom(Struct, frozen=True, omit_defaults=True):
    check: _Name
    target: _Name
    health: _Health = ""
    message: _Line = ""
    evidence: Annotated[tuple[_Line, ...], _schema(maxItems=MAX_EVIDENCE)] = ()


class StatusCondition(Struct, frozen=True, rename="camel"):
    """A condition in the form of the Kubernetes API conventions. reason: the state of the incident.

    Types: `Active`, until the incident is resolved; `Marked`, while its mark is set.
    """

    type: Annotated[str, _schema(maxLength=316)]
    status: Annotated[str, _schema(enum=["True", "False", "Unknown"])]
    reason: Annotated[str, _schema(minLength=1, maxLength=1024)]
    last_transition_time: _Time
    message: Annotated[str, _schema(maxLength=32768)] = ""
    observed_generation: _Generation = 0


class _Confinement(Struct, frozen=True):
    """The confinement of a suppressed check, with `since` as a timestamp."""

    since: _Time
    nodes: _Count = 0


class _DiagnosisRecord(Struct, frozen=True, rename="camel"):
    """The data with which a new aggregator continues a diagnosis, with timestamps.

    None removes an earlier timestamp in a merge patch.
    """

    fault_classes: Annotated[tuple[_Name, ...], _schema(maxItems=MAX_FAULT_CLASSES)] = ()
    window_seconds: _Count = 0
    nodes: _Count = 0
    recovering_since: _Time | None = None
    first_vote: _Time | None = None


class _Hardware(Struct, frozen=True, rename="camel"):
    """The names of a GPU. None removes an earlier one in a merge patch."""

    index: _Count | None = None
    serial: _Name | None = None
    board_part_number: _Name | None = None
    module_id: _Count | None = field(name="moduleID", default=None)
    slot: _Name | None = None


class IncidentStatus(Struct, frozen=True, rename="camel"):
    """Status of an object; empty fields are absent. subject: the domain or Node, else `check/NAME` or
    `job/NAME`.

    observed_generation: generation of the spec that nodeguard has processed.
    """

    subject: _Name = ""
    node: _Name = ""
    node_uid: _Name = field(name="nodeUID", default="")
    domain: _Name = ""
    target: _Name = ""
    scope: _Name = ""
    component: _Name = ""
    cause: _Name = ""
    fault_class: _Name = ""
    health: _Health = ""
    state: _State = ""
    action: _Action = ""
    message: _Message = ""
    detail: Annotated[str, _schema(maxLength=MAX_DETAIL)] = ""
    symptoms: Annotated[tuple[_Symptom, ...], _schema(maxItems=MAX_SYMPTOMS)] = ()
    first_seen: _Time = ""
    last_transition_time: _Time = ""
    resolved_at: _Time = ""
    occurrences: _Count = 0
    parent: _Name = ""
    budget: _Name = ""
    mark: _Mark = ""
    highest_health: _Health = ""
    confinement: _Confinement | None = None
    diagnosis: _DiagnosisRecord | None = None
    jobs: Annotated[tuple[_Name, ...], _schema(maxItems=MAX_JOBS)] = ()
    jobs_omitted: _Count = 0
    injected: bool = False
    hardware: _Hardware | None = None
    conditions: Annotated[tuple[StatusCondition, ...], _schema(maxItems=MAX_CONDITIONS)] = ()
    observed_generation: _Generation = 0


class _Meta(Struct):
    name: str
    uid: str
    version: str = field(name="resourceVersion")
    generation: int = 0


class _Clear(Struct):
    by: Annotated[str, _schema(minLength=1, **_NoteKeywords)] = ""
    at: _Time = ""


class IncidentSpec(Struct):
    """Operators' decisions on an object."""

    acknowledged: Annotated[str, _schema(**_NoteKeywords)] = ""
    clear: _Clear | None = None


class _Object(Struct):
    metadata: _Meta
    spec: IncidentSpec = field(default_factory=IncidentSpec)
    status: IncidentStatus = IncidentStatus()


class ObservedIncident(Struct, frozen=True):
    """An incident in the cluster. generation: of its spec, which has the operators' decision."""

    name: str
    uid: str
    version: str
    decision: OperatorDecision
    status: IncidentStatus
    generation: int = 0


_DECODER = msgspec.json.Decoder(_Object)


def decode_incident(raw: msgspec.Raw | bytes) -> ObservedIncident:
    """Return the incident of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    meta, spec = decoded.metadata, decoded.spec
    decision = OperatorDecision(meta.name, spec.acknowledged.strip(), _clear_text(spec.clear))
    return ObservedIncident(meta.name, meta.uid, meta.version, decision, decoded.status, meta.generation)


def clear_spec(by: str, timestamp: str) -> dict[str, Any]:
    """Return the spec by which an operator clears an incident; another time is another clear."""
    return {"clear": {"by": by, "at": timestamp}}


def is_shared(observed: ObservedIncident) -> bool:
    """Return whether an incident is about a domain or a check, and not about a single Node."""
    return observed.status.subject != "" and observed.status.node == ""


def incident_status(incident: Incident) -> IncidentStatus:
    """Return the status that the object of an incident should have."""
    return IncidentStatus(
        subject=(incident.domain or incident.node or incident.target)[:MAX_NAME],
        node=incident.node[:MAX_NAME],
        node_uid=incident.uid[:MAX_NAME],
        domain=incident.domain[:MAX_NAME],
        target=incident.target[:MAX_NAME],
        scope=incident.scope[:MAX_NAME],
        component=incident.component[:MAX_NAME],
        cause=incident.cause[:MAX_NAME],
        fault_class=incident.fault_class[:MAX_NAME],
        health=incident.health,
        state=incident.state,
        action=incident.action,
        message=incident.message[:MAX_MESSAGE],
        detail=incident.detail[:MAX_DETAIL],
        symptoms=tuple(_symptoms(incident.symptoms)),
        first_seen=rfc3339(incident.first_seen),
        last_transition_time=rfc3339(incident.last_transition),
        resolved_at=rfc3339(incident.resolved_at) if incident.resolved_at else "",
        occurrences=incident.occurrences,
        parent=incident.parent[:MAX_NAME],
        budget=incident.budget[:MAX_NAME],
        mark=incident.mark or "",
        highest_health=incident.highest_health or "",
        confinement=_confinement(incident.confinement),
        diagnosis=_diagnosis(incident.diagnosis),
        jobs=tuple(job[:MAX_NAME] for job in incident.jobs[:MAX_JOBS]),
        jobs_omitted=incident.jobs_omitted,
        injected=incident.injected,
        hardware=_hardware(incident.hardware),
        conditions=tuple(_conditions(incident)),
    )


def observed_status(desired: IncidentStatus, current: IncidentStatus, generation: int) -> IncidentStatus:
    """Return the desired status with what only the object knows: generations and times of transitions.

    A condition with an unchanged status keeps its time. generation: of the spec that was processed.
    """
    before = {condition.type: condition for condition in current.conditions}
    conditions = []
    for condition in desired.conditions:
        old = before.get(condition.type)
        is_same = old is not None and old.status == condition.status
        time = old.last_transition_time if old is not None and is_same else condition.last_transition_time
        conditions.append(replace(condition, last_transition_time=time, observed_generation=generation))
    return replace(desired, conditions=tuple(conditions), observed_generation=generation)


def to_incident(observed: ObservedIncident) -> Incident | None:
    """Return the incident that an object describes; None if it has no status yet, or one without health or
    state. A cluster may refuse values of other fields, see `stored_fields`.
    """
    status = observed.status
    try:
        return Incident(
            name=observed.name,
            node=status.node,
            uid=status.node_uid,
            target=status.target,
            cause=status.cause,
            health=Health(status.health),
            state=IncidentState(status.state),
            first_seen=parse_or_zero(status.first_seen),
            last_transition=parse_or_zero(status.last_transition_time),
            domain=status.domain,
            scope=status.scope,
            component=status.component,
            fault_class=status.fault_class,
            action=Action(status.action or Action.NONE),
            message=status.message,
            detail=status.detail,
            symptoms=tuple(map(_to_symptom, status.symptoms)),
            resolved_at=parse_or_zero(status.resolved_at),
            occurrences=status.occurrences,
            parent=status.parent,
            budget=status.budget,
            mark=Mark(status.mark) if status.mark else None,
            highest_health=Health(status.highest_health) if status.highest_health else None,
            confinement=_to_confinement(status.confinement),
            diagnosis=_to_diagnosis(status.diagnosis),
            jobs=status.jobs,
            jobs_omitted=status.jobs_omitted,
            injected=status.injected,
            hardware=_to_hardware(status.hardware),
        )
    except ValueError:
        return None


def _to_symptom(symptom: _Symptom) -> Symptom:
    """Return the symptom of an incident. Raises ValueError for an unknown health."""
    health = Health(symptom.health or Health.OK)
    return Symptom(symptom.check, symptom.target, health, symptom.message, symptom.evidence)


def _hardware(hardware: Hardware | None) -> _Hardware | None:
    """Return the names within their limits; an empty one is None."""
    if hardware is None:
        return None
    names: dict[str, Any] = {
        name: value[:MAX_NAME] or None if isinstance(value, str) else value
        for name, value in asdict(hardware).items()
    }
    return _Hardware(**names)


def _to_hardware(hardware: _Hardware | None) -> Hardware | None:
    if hardware is None:
        return None
    return Hardware(**{name: value for name, value in asdict(hardware).items() if value is not None})


def _confinement(confinement: Confinement | None) -> _Confinement | None:
    # A timestamp has seconds: the next one, so that it does not exclude a node.
    return None if confinement is None else _Confinement(rfc3339(ceil(confinement.since)), confinement.nodes)


def _to_confinement(confinement: _Confinement | None) -> Confinement | None:
    since = parse_or_zero(confinement.since) if confinement is not None else 0.0
    return Confinement(since, confinement.nodes) if confinement is not None and since else None


def _diagnosis(record: DiagnosisRecord | None) -> _DiagnosisRecord | None:
    if record is None:
        return None
    names = tuple(name[:MAX_NAME] for name in record.fault_classes[:MAX_FAULT_CLASSES])
    since = rfc3339(record.recovering_since) if record.recovering_since else None
    first = rfc3339(record.first_vote) if record.first_vote else None
    return _DiagnosisRecord(names, round(record.window), record.nodes, since, first)


def _to_diagnosis(record: _DiagnosisRecord | None) -> DiagnosisRecord | None:
    if record is None:
        return None
    since, first = parse_or_zero(record.recovering_since or ""), parse_or_zero(record.first_vote or "")
    return DiagnosisRecord(record.fault_classes, float(record.window_seconds), record.nodes, since, first)


def new_object(name: str) -> dict[str, Any]:
    """Return the object of an incident without a status."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}}


def status_patch(status: IncidentStatus | Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that replaces an object's status. A value of None removes the field."""
    return {"status": {name: value or None for name, value in msgspec.to_builtins(status).items()}}


def _conditions(incident: Incident) -> Iterable[StatusCondition]:
    reason = incident.state.value
    active_since = incident.first_seen if incident.is_open else incident.resolved_at
    is_marked = incident.state in _MARKED_STATES
    message, mark = incident.message[:MAX_MESSAGE], mark_message(incident)[:MAX_MESSAGE]
    yield StatusCondition("Active", _truth(incident.is_open), reason, rfc3339(active_since), message)
    yield StatusCondition("Marked", _truth(is_marked), reason, rfc3339(incident.last_transition), mark)


def _truth(value: bool) -> str:  # noqa: FBT001 - a condition's status
    return "True" if value else "False"


def _clear_text(clear: _Clear | None) -> str:
    if clear is None:
        return ""
    by, at = clear.by.strip(), clear.at.strip()
    return f"{by} at {at}" if at else by


def _symptoms(symptoms: Iterable[Symptom]) -> Iterable[_Symptom]:
    for symptom, _ in zip(symptoms, range(MAX_SYMPTOMS), strict=False):
        evidence = tuple(line[:MAX_LINE] for line in symptom.evidence[:MAX_EVIDENCE])
        yield _Symptom(
            symptom.check[:MAX_NAME],
            symptom.target[:MAX_NAME],
            symptom.health,
            symptom.message[:MAX_LINE],
            evidence,
        )
