"""The pods of one Node that its kubelet rejected, and its boot: read on demand, for few Nodes.

One owner creates about four such pods in a second while the device plugin of a Ready Node has lost a GPU.
"""

from __future__ import annotations

from msgspec import Struct, field

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError, decoded
from nodeguard.kube.node_pods import PATH, PodSpec, uses_devices
from nodeguard.kube.nodes import PATH as NODES
from nodeguard.kube.objects import TypedList
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.pod import MAX_REJECTED, RejectedPods
from nodeguard.model.printable import printable

# Of the kubelet, for a pod that no device could be allocated to.
_REASON = "UnexpectedAdmissionError"

# Maximum bytes of the failed pods of a Node, and characters of a message.
_MAX_BYTES = 8 * 1024 * 1024
_MAX_MESSAGE = 200


class _Status(Struct):
    reason: str = ""
    message: str = ""


class _Metadata(Struct):
    created_at: str | None = field(name="creationTimestamp", default=None)


class _Pod(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: PodSpec = field(default_factory=PodSpec)
    status: _Status = field(default_factory=_Status)


class NodeBoot(Struct, frozen=True):
    """The boot of a Node, and the number of GPUs that its device plugin offers."""

    boot_id: str
    gpus: int


class _Info(Struct):
    boot_id: str = field(name="bootID", default="")


class _Allocatable(Struct):
    gpus: str = field(name="nvidia.com/gpu", default="0")


class _NodeStatus(Struct):
    info: _Info = field(name="nodeInfo", default_factory=_Info)
    allocatable: _Allocatable = field(default_factory=_Allocatable)


class _Node(Struct):
    status: _NodeStatus = field(default_factory=_NodeStatus)


_PODS = JsonDecoder(TypedList[_Pod])
_NODE = JsonDecoder(_Node)


async def read_node_boot(api: ApiClient, node: str) -> NodeBoot:
    """Return the boot of a Node, by its name. Raises ApiError."""
    body = await api.request("GET", f"{NODES}/{node}", query={"resourceVersion": "0"})
    status = decoded(_NODE.decode, body, f"Node {node}").status
    gpus = status.allocatable.gpus
    return NodeBoot(status.info.boot_id, int(gpus) if gpus.isascii() and gpus.isdigit() else 0)


async def read_rejected_pods(api: ApiClient, node: str, since: float) -> RejectedPods:
    """Return the rejected pods of a Node, by its name. since: as of rejected_pods. Raises ApiError."""
    # The cache of the API server has an index of the pods by Node; it may ignore the limit.
    query: dict[str, str | int] = {
        "fieldSelector": f"spec.nodeName={node},status.phase=Failed",
        "resourceVersion": "0",
        "limit": MAX_REJECTED,
    }
    try:
        body = await api.request("GET", PATH, query=query, max_bytes=_MAX_BYTES)
    except ApiError as error:
        if error.reason == "TooLarge":
            return RejectedPods(MAX_REJECTED, 0.0, "")
        raise
    return decoded(lambda data: rejected_pods(data, since), body, f"the failed pods of Node {node}")


def rejected_pods(body: bytes, since: float) -> RejectedPods:
    """Return the rejected pods of a list of failed ones. Only pods with devices count that were created at or
    after a time in seconds since the epoch: a kubelet that starts may reject older ones, whatever the GPUs.
    Raises msgspec.MsgspecError.
    """
    rejected = [
        (created, pod.status.message)
        for pod in _PODS.decode(body).items or ()
        if pod.status.reason == _REASON
        and uses_devices(pod.spec)
        and (created := parse_or_zero(pod.metadata.created_at or "")) >= int(since)
    ]
    latest, message = max(rejected, default=(0.0, ""))
    return RejectedPods(min(len(rejected), MAX_REJECTED), latest, printable(message[:_MAX_MESSAGE]))
