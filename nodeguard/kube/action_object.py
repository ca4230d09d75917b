"""NodeAction objects: `spec` is an action as it was reserved, `status` its progress. Pure."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from nodeguard.kube.objects import TypedObject
from nodeguard.model.action import MAX_PODS, ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.instant import parse_or_zero, rfc3339
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.pod import PodGroupKey, PodKey
from nodeguard.model.projection import project

API_VERSION = "nodeguard.dev/v1alpha1"
KIND = "NodeAction"

# The remedy for a CustomResourceDefinition that is absent or of another version.
ACTIONS_REMEDY = (
    "apply crd-nodeactions.yaml of the aggregator's version; the chart does with crd.install: true"
)

# Limits of an object, in characters and in items.
MAX_NAME = 256
MAX_REQUEST = 512
MAX_MESSAGE = 1024
MAX_FINDINGS = 256
MAX_GPUS = 64


def _schema(**keywords: Any) -> Meta:
    """Return keywords of the CustomResourceDefinition. Decoding ignores these."""
    return Meta(extra_json_schema=keywords)


_Name = Annotated[str, _schema(maxLength=MAX_NAME)]
_RequiredName = Annotated[str, _schema(minLength=1, maxLength=MAX_NAME)]
_Time = Annotated[str, _schema(format="date-time")]
_Count = Annotated[int, _schema(minimum=0)]


class _Finding(Struct, frozen=True):
    # As in a report, which may have any text: a refused action would keep all others waiting.
    check: _Name
    target: _Name


class _PodReference(Struct, frozen=True, omit_defaults=True):
    namespace: _RequiredName
    name: _RequiredName
    uid: _RequiredName
    job: _Name = ""


class _PodGroupReference(Struct, frozen=True):
    namespace: _RequiredName
    name: _RequiredName


class ActionSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is done: it never changes."""

    action: Annotated[str, _schema(enum=[*ActionKind])]
    node: _RequiredName
    node_uid: _RequiredName = field(name="nodeUID")
    request: Annotated[str, _schema(minLength=1, maxLength=MAX_REQUEST)]
    attempt: Annotated[int, _schema(minimum=1)]
    requested_at: _Time
    deadline: _Time = ""
    incident: _Name = ""
    occurrence: _Count = 0
    findings: Annotated[tuple[_Finding, ...], _schema(maxItems=MAX_FINDINGS)] = ()
    gpus: Annotated[tuple[_Name, ...], _schema(maxItems=MAX_GPUS)] = ()
    duration_seconds: _Count = 0
    pods: Annotated[tuple[_PodReference, ...], _schema(maxItems=MAX_PODS)] = ()
    pod_groups: Annotated[tuple[_PodGroupReference, ...], _schema(maxItems=MAX_PODS)] = ()
    requested_by: _Name = ""


class ActionStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How it goes on; an object without a status is reserved."""

    state: Annotated[str, _schema(enum=[*ActionState])] = ""
    carried_out: _Count = 0
    message: Annotated[str, _schema(maxLength=MAX_MESSAGE)] = ""
    remaining: Annotated[tuple[_RequiredName, ...], _schema(maxItems=MAX_PODS)] = ()
    begun_at: _Time = ""
    released_at: _Time = ""
    taken_over_at: _Time = ""
    last_transition_time: _Time = ""


class _Object(TypedObject):
    spec: ActionSpec
    status: ActionStatus = ActionStatus()


class ObservedAction(Struct, frozen=True):
    """An action in the cluster. action: None for one that this version does not know or did not name: it is
    neither started nor changed.
    """

    name: str
    uid: str
    version: str
    action: NodeAction | None


_DECODER, _OBJECT = JsonDecoder(_Object), JsonDecoder(TypedObject)
_KINDS, _STATES = frozenset(ActionKind), frozenset(ActionState)


def decode_action(raw: msgspec.Raw | bytes) -> ObservedAction:
    """Return the action of an object's JSON. Raises msgspec.MsgspecError if it is no object."""
    try:
        decoded = _DECODER.decode(raw)
    except msgspec.MsgspecError:
        # One action of another version must not keep all others from being read.
        meta, action = _OBJECT.decode(raw).metadata, None
    else:
        meta, action = decoded.metadata, _known_action(decoded.spec, decoded.status)
    if action is not None and action.key != meta.name:
        action = None
    return ObservedAction(meta.name, meta.uid, meta.version, action)


def _known_action(spec: ActionSpec, status: ActionStatus) -> NodeAction | None:
    """Return the action of an object; None for one of another version that this one cannot carry on."""
    if spec.action not in _KINDS or (status.state and status.state not in _STATES):
        return None
    kind = ActionKind(spec.action)
    has_pods = bool(spec.pods) and (kind == ActionKind.DRAIN or bool(spec.deadline))
    if (kind == ActionKind.CLEAR and not spec.findings) or (not kind.is_for_agent and not has_pods):
        return None
    return project(
        NodeAction,
        spec,
        kind=kind,
        uid=spec.node_uid,
        created_at=int(parse_or_zero(spec.requested_at)),
        deadline=int(parse_or_zero(spec.deadline)),
        findings=tuple(FindingKey(finding.check, finding.target) for finding in spec.findings),
        seconds=spec.duration_seconds,
        pods=tuple(project(PodKey, pod) for pod in spec.pods),
        pod_groups=tuple(PodGroupKey(group.namespace, group.name) for group in spec.pod_groups),
        begun_at=int(parse_or_zero(status.begun_at)),
        released_at=int(parse_or_zero(status.released_at)),
        taken_over_at=int(parse_or_zero(status.taken_over_at)),
        state=ActionState(status.state or ActionState.RESERVED),
        carried_out=status.carried_out,
        message=status.message,
        remaining=status.remaining,
        changed_at=int(parse_or_zero(status.last_transition_time)),
    )


def action_body(action: NodeAction, namespace: str, version: str = "") -> dict[str, Any]:
    """Return the object of an action. version: the resourceVersion that it replaces, empty for a new one."""
    metadata = {"name": action.key, "namespace": namespace, "labels": {"app.kubernetes.io/name": "nodeguard"}}
    if version:
        metadata["resourceVersion"] = version
    spec = project(
        ActionSpec,
        action,
        action=action.kind,
        node_uid=action.uid,
        requested_at=rfc3339(action.created_at),
        deadline=rfc3339(action.deadline) if action.deadline else "",
        findings=tuple(_Finding(finding.check, finding.target) for finding in action.findings),
        duration_seconds=action.seconds,
        pods=tuple(project(_PodReference, pod) for pod in action.pods),
        pod_groups=tuple(_PodGroupReference(group.namespace, group.name) for group in action.pod_groups),
    )
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": msgspec.to_builtins(spec)}
    if version:
        body["status"] = msgspec.to_builtins(
            ActionStatus(
                action.state,
                action.carried_out,
                action.message,
                action.remaining,
                rfc3339(action.begun_at) if action.begun_at else "",
                rfc3339(action.released_at) if action.released_at else "",
                rfc3339(action.taken_over_at) if action.taken_over_at else "",
                rfc3339(action.changed_at),
            )
        )
    return body
