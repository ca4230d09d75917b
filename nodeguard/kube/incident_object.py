"""NodeIncident objects: `spec` is written by operators, `status` by nodeguard. Pure.

nodeguard.kube.incident_projection has the status of an incident.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from nodeguard.kube.objects import TypedObject
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import FalseAlarm, IncidentState, OperatorDecision
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import FINDING_MARKS

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
_Mark = Annotated[str, _schema(enum=[*FINDING_MARKS])]

# An incident in its grace period is not recorded, and `Advised` is the state without a cluster.
_UNWRITTEN_STATES: Final = frozenset({IncidentState.PENDING, IncidentState.ADVISED})
_State = Annotated[str, _schema(enum=[state for state in IncidentState if state not in _UNWRITTEN_STATES])]

# An operator's text: one line.
_NoteKeywords: Final = {"maxLength": MAX_NAME, "pattern": r"^[^\x00-\x1f\x7f]*$"}


class SymptomStatus(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A finding of the incident."""

    check: _Name
    target: _Name
    health: _Health = ""
    message: _Line = ""
    evidence: Annotated[tuple[_Line, ...], _schema(maxItems=MAX_EVIDENCE)] = ()
    evidence_omitted: _Count = 0


class StatusCondition(Struct, frozen=True, rename="camel"):
    """A condition in the form of the Kubernetes API conventions. reason: the state of the incident, or
    why the mark is not as that state says: `WritePending`, `WriteRefused` or `NotAccepted`.

    Types: `Active`, until the incident is resolved; `Marked`, while its mark is observed.
    """

    type: Annotated[str, _schema(maxLength=316)]
    status: Annotated[str, _schema(enum=["True", "False", "Unknown"])]
    reason: Annotated[str, _schema(minLength=1, maxLength=1024)]
    last_transition_time: _Time
    message: Annotated[str, _schema(maxLength=32768)] = ""
    observed_generation: _Generation = 0


class ConfinementStatus(Struct, frozen=True):
    """The confinement of a suppressed check, with `since` as a timestamp."""

    since: _Time
    nodes: _Count = 0


class DiagnosisStatus(Struct, frozen=True, rename="camel"):
    """The data with which a new aggregator continues a diagnosis, with timestamps.

    None removes an earlier timestamp in a merge patch.
    """

    fault_classes: Annotated[tuple[_Name, ...], _schema(maxItems=MAX_FAULT_CLASSES)] = ()
    window_seconds: _Count = 0
    nodes: _Count = 0
    recovering_since: _Time | None = None
    first_vote: _Time | None = None


class HardwareStatus(Struct, frozen=True, rename="camel"):
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
    symptoms: Annotated[tuple[SymptomStatus, ...], _schema(maxItems=MAX_SYMPTOMS)] = ()
    symptoms_omitted: _Count = 0
    first_seen: _Time = ""
    last_transition_time: _Time = ""
    resolved_at: _Time = ""
    occurrences: _Count = 0
    parent: _Name = ""
    budget: _Name = ""
    mark: _Mark = ""
    highest_health: _Health = ""
    confinement: ConfinementStatus | None = None
    diagnosis: DiagnosisStatus | None = None
    jobs: Annotated[tuple[_Name, ...], _schema(maxItems=MAX_JOBS)] = ()
    jobs_omitted: _Count = 0
    injected: bool = False
    hardware: HardwareStatus | None = None
    conditions: Annotated[tuple[StatusCondition, ...], _schema(maxItems=MAX_CONDITIONS)] = ()
    observed_generation: _Generation = 0


class _Clear(Struct):
    by: Annotated[str, _schema(minLength=1, **_NoteKeywords)] = ""
    at: _Time = ""


class _FalseAlarm(Struct):
    by: Annotated[str, _schema(minLength=1, **_NoteKeywords)] = ""
    at: _Time = ""
    reason: Annotated[str, _schema(**{**_NoteKeywords, "maxLength": MAX_LINE})] = ""
    withdrawn: bool = False


class IncidentSpec(Struct, rename="camel"):
    """Operators' decisions on an object."""

    acknowledged: Annotated[str, _schema(**_NoteKeywords)] = ""
    clear: _Clear | None = None
    false_alarm: _FalseAlarm | None = None


class _Object(TypedObject):
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


_DECODER = JsonDecoder(_Object)


def decode_incident(raw: msgspec.Raw | bytes) -> ObservedIncident:
    """Return the incident of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    meta, spec = decoded.metadata, decoded.spec
    decision = OperatorDecision(
        meta.name,
        spec.acknowledged.strip(),
        _clear_text(spec.clear),
        false_alarm=_to_false_alarm(spec.false_alarm),
    )
    return ObservedIncident(meta.name, meta.uid, meta.version, decision, decoded.status, meta.generation)


def clear_spec(by: str, timestamp: str) -> dict[str, Any]:
    """Return the spec by which an operator clears an incident; another time is another clear."""
    return {"clear": {"by": by, "at": timestamp}}


def false_alarm_spec(statement: FalseAlarm) -> dict[str, Any]:
    """Return the merge patch of the spec by which an operator states a false alarm, or withdraws that."""
    return {
        "falseAlarm": {
            "by": statement.by,
            "at": statement.at,
            "reason": statement.reason or None,
            "withdrawn": statement.withdrawn or None,
        }
    }


def forget_decisions(decision: OperatorDecision, opened_at: float, latest: float) -> OperatorDecision:
    """Return the decisions of an incident that opens again: the clear and the false alarm of the earlier
    occurrence are removed, and those without a time.

    opened_at: when it opened, in seconds since the epoch. Later decisions are about the occurrence that
    begins, up to the time `latest`: one of the future would stay for all later occurrences.
    """
    statement = decision.false_alarm
    if statement is not None and not opened_at < parse_or_zero(statement.at) <= latest:
        statement = None
    clear = decision.clear if opened_at < decision.cleared_at <= latest else ""
    return replace(decision, clear=clear, false_alarm=statement)


def forget_spec(before: OperatorDecision, after: OperatorDecision) -> dict[str, None]:
    """Return the merge patch of the spec that removes the decisions that are only in `before`."""
    fields = {"clear": before.clear != after.clear, "falseAlarm": before.false_alarm != after.false_alarm}
    return dict.fromkeys(name for name, is_removed in fields.items() if is_removed)


def is_shared(observed: ObservedIncident) -> bool:
    """Return whether an incident is about a domain or a check, and not about a single Node."""
    return observed.status.subject != "" and observed.status.node == ""


def observed_status(desired: IncidentStatus, current: IncidentStatus, generation: int) -> IncidentStatus:
    """Return the desired status with what only the object knows: generations and times.

    A condition with an unchanged status keeps its time, and so does an incident without a transition: each
    replica has seen it at another time, and a new leader would otherwise write all incidents again. The begin
    of an open incident stays. generation: of the spec that was processed.
    """
    before = {condition.type: condition for condition in current.conditions}
    conditions = []
    for condition in desired.conditions:
        old = before.get(condition.type)
        is_same = old is not None and old.status == condition.status
        time = old.last_transition_time if old is not None and is_same else condition.last_transition_time
        conditions.append(replace(condition, last_transition_time=time, observed_generation=generation))
    status = replace(desired, conditions=tuple(conditions), observed_generation=generation)
    is_open = current.state not in {"", IncidentState.RESOLVED}
    is_same_transition = _transitions(desired) == _transitions(current)
    if is_same_transition or (is_open and desired.occurrences == current.occurrences):
        status = replace(status, first_seen=current.first_seen or desired.first_seen)
    if is_same_transition:
        last_transition_time = current.last_transition_time or desired.last_transition_time
        status = replace(status, last_transition_time=last_transition_time)
    return status


def _transitions(status: IncidentStatus) -> tuple[object, ...]:
    """Return the fields that only a transition changes."""
    return status.state, status.health, status.cause, status.action, status.occurrences


def new_object(name: str) -> dict[str, Any]:
    """Return the object of an incident without a status."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}}


def status_patch(status: IncidentStatus | Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that replaces an object's status. A value of None removes the field."""
    return {"status": {name: value or None for name, value in msgspec.to_builtins(status).items()}}


def _clear_text(clear: _Clear | None) -> str:
    if clear is None:
        return ""
    by, at = clear.by.strip(), clear.at.strip()
    return f"{by} at {at}" if at else by


def _to_false_alarm(statement: _FalseAlarm | None) -> FalseAlarm | None:
    if statement is None:
        return None
    texts = statement.by.strip(), statement.at.strip(), statement.reason.strip()
    return FalseAlarm(*texts, statement.withdrawn)
