"""Incidents as objects of the cluster: `spec` is people's, `status` is nodeguard's. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision, Symptom
from nodeguard.model.instant import parse_or_zero, rfc3339

API_VERSION = "nodeguard.dev/v1alpha1"
KIND = "NodeIncident"

# What an object holds at most, in characters and in number: far from what a cluster takes. The definition of
# the resource has the same bounds.
MAX_NAME = 256
MAX_MESSAGE = 1024
MAX_DETAIL = 4096
MAX_SYMPTOMS = 20
MAX_EVIDENCE = 5
MAX_LINE = 512


class _Symptom(Struct, frozen=True, omit_defaults=True):
    check: str
    target: str
    health: str = ""
    message: str = ""
    evidence: tuple[str, ...] = ()


class IncidentStatus(Struct, frozen=True):
    """The status of an incident; what is empty is not there. where: the domain or Node, else `check/NAME`."""

    subject: str = ""
    node: str = ""
    uid: str = ""
    domain: str = ""
    target: str = ""
    scope: str = ""
    component: str = ""
    cause: str = ""
    fault_class: str = field(name="class", default="")
    health: str = ""
    state: str = ""
    action: str = ""
    message: str = ""
    detail: str = ""
    symptoms: tuple[_Symptom, ...] = ()
    first_seen: str = ""
    last_transition_time: str = ""
    resolved_at: str = ""
    occurrences: int = 0
    parent: str = ""
    budget: str = ""


class _Meta(Struct):
    name: str
    uid: str
    version: str = field(name="resourceVersion")


class _Spec(Struct):
    acknowledged: str = ""
    clear: str = ""


class _Object(Struct):
    metadata: _Meta
    spec: _Spec = field(default_factory=_Spec)
    status: IncidentStatus = IncidentStatus()


class ObservedIncident(Struct, frozen=True):
    """An incident as it stands in the cluster."""

    name: str
    uid: str
    version: str
    decision: OperatorDecision
    status: IncidentStatus


_DECODER = msgspec.json.Decoder(_Object)


def decode_incident(raw: msgspec.Raw | bytes) -> ObservedIncident:
    """An object's JSON. Raises msgspec.MsgspecError."""
    said = _DECODER.decode(raw)
    meta = said.metadata
    decision = OperatorDecision(meta.name, said.spec.acknowledged.strip(), said.spec.clear.strip())
    return ObservedIncident(meta.name, meta.uid, meta.version, decision, said.status)


def is_shared(one: ObservedIncident) -> bool:
    """Whether an object tells of a domain or a check, and so of no single Node."""
    return one.status.subject != "" and one.status.node == ""


def incident_status(incident: Incident) -> IncidentStatus:
    """What the object of an incident is to say."""
    return IncidentStatus(
        subject=(incident.domain or incident.node or incident.target)[:MAX_NAME],
        node=incident.node[:MAX_NAME],
        uid=incident.uid[:MAX_NAME],
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
    )


def to_incident(one: ObservedIncident) -> Incident | None:
    """The incident that an object tells of; None where it tells of none yet."""
    said = one.status
    try:
        return Incident(
            name=one.name,
            node=said.node,
            uid=said.uid,
            target=said.target,
            cause=said.cause,
            health=Health(said.health),
            state=IncidentState(said.state),
            first_seen=parse_or_zero(said.first_seen),
            last_transition=parse_or_zero(said.last_transition_time),
            domain=said.domain,
            scope=said.scope,
            component=said.component,
            fault_class=said.fault_class,
            action=Action(said.action),
            message=said.message,
            detail=said.detail,
            symptoms=tuple(
                Symptom(each.check, each.target, Health(each.health), each.message, each.evidence)
                for each in said.symptoms
            ),
            resolved_at=parse_or_zero(said.resolved_at),
            occurrences=said.occurrences,
            parent=said.parent,
            budget=said.budget,
        )
    except ValueError:
        return None


def new_object(name: str) -> dict[str, Any]:
    """The object of an incident before it has a status."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}}


def status_patch(said: IncidentStatus) -> dict[str, Any]:
    """The merge patch of an object's status, after which it says this and nothing else."""
    return {"status": {name: value or None for name, value in msgspec.to_builtins(said).items()}}


def _symptoms(symptoms: Iterable[Symptom]) -> Iterable[_Symptom]:
    for one, _ in zip(symptoms, range(MAX_SYMPTOMS), strict=False):
        evidence = tuple(line[:MAX_LINE] for line in one.evidence[:MAX_EVIDENCE])
        yield _Symptom(
            one.check[:MAX_NAME], one.target[:MAX_NAME], one.health, one.message[:MAX_LINE], evidence
        )
