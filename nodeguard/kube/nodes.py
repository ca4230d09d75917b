"""Decoding of Node objects: only the fields that decisions need, as one may have a quarter of a MiB."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec
from msgspec import Struct, field

from nodeguard.executors.kube.drain_conditions import DRAIN_CONDITIONS
from nodeguard.kube.client import ApiClient
from nodeguard.kube.node_patch import HEALTHY_CONDITION
from nodeguard.kube.objects import TypedObject
from nodeguard.kube.watch import Watch, WatchHandler
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.node import (
    MAINTENANCE_IN_PROGRESS,
    MAINTENANCE_PLANNED,
    PREFIX,
    Node,
    NodeCondition,
    Taint,
)

PATH = "/api/v1/nodes"

# The kubelet's condition.
_READY_CONDITION = "Ready"

_MAINTENANCE_CONDITIONS = frozenset({MAINTENANCE_PLANNED, MAINTENANCE_IN_PROGRESS})


class _Spec(Struct):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class _Condition(Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    changed: str | None = field(name="lastTransitionTime", default=None)  # null for a time that is not set


class _Capacity(Struct):
    gpus: str = field(name="nvidia.com/gpu", default="0")


class _Status(Struct):
    capacity: _Capacity = field(default_factory=_Capacity)
    conditions: list[_Condition] = []


class _Node(TypedObject):
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_DECODER = JsonDecoder(_Node)

_COUNT = re.compile(r"[0-9]{1,4}\Z")

# Thousands of Nodes have the same label keys and values: each string is stored once, up to this number.
_MAX_INTERNED = 16_384
_INTERNED: dict[str, str] = {}


def decode_node(raw: msgspec.Raw | bytes) -> Node:
    """Return the Node of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    meta, spec, status = decoded.metadata, decoded.spec, decoded.status
    own = [condition for condition in status.conditions if condition.type == HEALTHY_CONDITION]
    ready = [condition for condition in status.conditions if condition.type == _READY_CONDITION]
    gpus = status.capacity.gpus
    return Node(
        name=meta.name,
        uid=meta.uid,
        version=meta.version,
        labels={_interned(key): _interned(value) for key, value in meta.labels.items()},
        annotations={key: value for key, value in meta.annotations.items() if key.startswith(PREFIX)},
        taints=spec.taints,
        unschedulable=spec.unschedulable,
        condition=NodeCondition(own[0].status, own[0].reason, own[0].message) if own else None,
        drain_conditions={
            condition.type: NodeCondition(condition.status, condition.reason, condition.message)
            for condition in status.conditions
            if condition.type in DRAIN_CONDITIONS
        },
        maintenance_conditions=frozenset(
            condition.type
            for condition in status.conditions
            if condition.type in _MAINTENANCE_CONDITIONS and condition.status == "True"
        ),
        gpus=int(gpus) if _COUNT.match(gpus) else 0,
        ready=all(condition.status == "True" for condition in ready),
        not_ready_since=max(
            (_timestamp(condition.changed) for condition in ready if condition.status != "True"), default=0.0
        ),
    )


def _timestamp(text: str | None) -> float:
    """Return a time of the API in seconds since the epoch; 0 if it is absent or invalid."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return at.timestamp() if at.tzinfo is not None else 0.0


def _interned(text: str) -> str:
    if (interned := _INTERNED.get(text)) is not None:
        return interned
    if len(_INTERNED) < _MAX_INTERNED:
        _INTERNED[text] = text
    return text


def watch_nodes(api: ApiClient, handler: WatchHandler[Node]) -> Watch[Node]:
    """Return a watch of all Nodes of a cluster."""
    return Watch(api, PATH, "Nodes", decode_node, handler)
