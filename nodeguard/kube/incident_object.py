"""Incidents as objects of the cluster: `spec` is people's, `status` is nodeguard's. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from nodeguard.kube.moments import seconds
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Decision, Incident, State, Symptom
from nodeguard.model.instant import rfc3339

VERSION = "nodeguard.dev/v1alpha1"
KIND = "NodeIncident"

# What an object holds at most, in characters and in number: far from what a cluster takes. The definition of
# the resource has the same bounds.
WORD = 256
MESSAGE = 1024
DETAIL = 4096
SYMPTOMS = 20
EVIDENCE = 5
LINE = 512


class _Symptom(Struct, frozen=True, omit_defaults=True):
    check: str
    target: str
    health: str = ""
    message: str = ""
    evidence: tuple[str, ...] = ()


class Status(Struct, frozen=True):
    """The status of an incident; what is empty is not there. where: the domain or Node, else `check/NAME`."""

    where: str = ""
    node: str = ""
    uid: str = ""
    domain: str = ""
    resource: str = ""
    scope: str = ""
    part: str = ""
    cause: str = ""
    word: str = field(name="class", default="")
    health: str = ""
    state: str = ""
    action: str = ""
    message: str = ""
    detail: str = ""
    symptoms: tuple[_Symptom, ...] = ()
    since: str = ""
    changed: str = ""
    resolved: str = ""
    times: int = 0
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
    status: Status = Status()


class Seen(Struct, frozen=True):
    """An incident as it stands in the cluster."""

    name: str
    uid: str
    version: str
    decision: Decision
    status: Status


_DECODER = msgspec.json.Decoder(_Object)


def seen(raw: msgspec.Raw | bytes) -> Seen:
    """An object's JSON. Raises msgspec.MsgspecError."""
    said = _DECODER.decode(raw)
    meta = said.metadata
    decision = Decision(meta.name, said.spec.acknowledged.strip(), said.spec.clear.strip())
    return Seen(meta.name, meta.uid, meta.version, decision, said.status)


def is_of_many(one: Seen) -> bool:
    """Whether an object tells of a domain or a check, and so of no single Node."""
    return one.status.where != "" and one.status.node == ""


def status(incident: Incident) -> Status:
    """What the object of an incident is to say."""
    return Status(
        where=(incident.domain or incident.node or incident.resource)[:WORD],
        node=incident.node[:WORD],
        uid=incident.uid[:WORD],
        domain=incident.domain[:WORD],
        resource=incident.resource[:WORD],
        scope=incident.scope[:WORD],
        part=incident.part[:WORD],
        cause=incident.cause[:WORD],
        word=incident.word[:WORD],
        health=incident.health,
        state=incident.state,
        action=incident.action,
        message=incident.message[:MESSAGE],
        detail=incident.detail[:DETAIL],
        symptoms=tuple(_symptoms(incident.symptoms)),
        since=rfc3339(incident.since),
        changed=rfc3339(incident.changed),
        resolved=rfc3339(incident.resolved) if incident.resolved else "",
        times=incident.times,
        parent=incident.parent[:WORD],
        budget=incident.budget[:WORD],
    )


def incident(one: Seen) -> Incident | None:
    """The incident that an object tells of; None where it tells of none yet."""
    said = one.status
    try:
        return Incident(
            name=one.name,
            node=said.node,
            uid=said.uid,
            resource=said.resource,
            cause=said.cause,
            health=Health(said.health),
            state=State(said.state),
            since=seconds(said.since),
            changed=seconds(said.changed),
            domain=said.domain,
            scope=said.scope,
            part=said.part,
            word=said.word,
            action=Action(said.action),
            message=said.message,
            detail=said.detail,
            symptoms=tuple(
                Symptom(each.check, each.target, Health(each.health), each.message, each.evidence)
                for each in said.symptoms
            ),
            resolved=seconds(said.resolved),
            times=said.times,
            parent=said.parent,
            budget=said.budget,
        )
    except ValueError:
        return None


def new(name: str) -> dict[str, Any]:
    """The object of an incident before it has a status."""
    return {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}}


def patch(said: Status) -> dict[str, Any]:
    """The merge patch of an object's status, after which it says this and nothing else."""
    return {"status": {name: value or None for name, value in msgspec.to_builtins(said).items()}}


def _symptoms(symptoms: Iterable[Symptom]) -> Iterable[_Symptom]:
    for one, _ in zip(symptoms, range(SYMPTOMS), strict=False):
        evidence = tuple(line[:LINE] for line in one.evidence[:EVIDENCE])
        yield _Symptom(one.check[:WORD], one.target[:WORD], one.health, one.message[:LINE], evidence)
