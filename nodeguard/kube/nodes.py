"""Node objects, of which little is kept: one of them can have a quarter of a MiB."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import ApiClient
from nodeguard.kube.error_log import Log
from nodeguard.kube.watch import Watch, WatchHandler
from nodeguard.model.node import PREFIX, Node, NodeCondition, Taint

PATH = "/api/v1/nodes"

# The one condition that is nodeguard's, and the kubelet's.
HEALTHY_CONDITION = "NodeguardHealthy"
_READY = "Ready"


class _Meta(Struct):
    name: str
    uid: str
    version: str = field(name="resourceVersion")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Spec(Struct):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class _Condition(Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Capacity(Struct):
    gpus: str = field(name="nvidia.com/gpu", default="0")


class _Status(Struct):
    capacity: _Capacity = field(default_factory=_Capacity)
    conditions: list[_Condition] = []


class _Node(Struct):
    metadata: _Meta
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_DECODER = msgspec.json.Decoder(_Node)

_COUNT = re.compile(r"[0-9]{1,4}\Z")

# Thousands of Nodes have the same words in their labels: each is kept once, and so many of them at most.
_MOST = 16_384
_WORDS: dict[str, str] = {}


def decode_node(raw: msgspec.Raw | bytes) -> Node:
    """A Node object's JSON as a Node. Raises msgspec.MsgspecError."""
    said = _DECODER.decode(raw)
    meta, spec = said.metadata, said.spec
    own = [one for one in said.status.conditions if one.type == HEALTHY_CONDITION]
    gpus = said.status.capacity.gpus
    return Node(
        name=meta.name,
        uid=meta.uid,
        version=meta.version,
        labels={_shared(key): _shared(value) for key, value in meta.labels.items()},
        annotations={key: value for key, value in meta.annotations.items() if key.startswith(PREFIX)},
        taints=spec.taints,
        unschedulable=spec.unschedulable,
        condition=NodeCondition(own[0].status, own[0].reason, own[0].message) if own else None,
        gpus=int(gpus) if _COUNT.match(gpus) else 0,
        ready=all(one.status == "True" for one in said.status.conditions if one.type == _READY),
    )


def _shared(word: str) -> str:
    if (known := _WORDS.get(word)) is not None:
        return known
    if len(_WORDS) < _MOST:
        _WORDS[word] = word
    return word


def watch_nodes(api: ApiClient, taker: WatchHandler[Node], tell: Log) -> Watch[Node]:
    """What follows all Nodes of a cluster for a taker."""
    return Watch(api, PATH, "Nodes", decode_node, taker, tell)
