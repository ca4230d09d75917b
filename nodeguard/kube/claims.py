"""ResourceClaims of the pods of one Node, for a drain: which GPUs a DRA driver allocated to a pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from nodeguard.kube.devices import DeviceKey
from nodeguard.kube.gpu_pods import Toleration, tolerates_quarantine
from nodeguard.kube.objects import TypedObject
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.pod import SHARED_GPU, NodePod

# Namespace and name of a claim.
ClaimKey = tuple[str, str]


class _Result(Struct):
    driver: str
    pool: str
    device: str
    # Access for a monitor: the device is free for others.
    is_admin: bool = field(name="adminAccess", default=False)
    share: str = field(name="shareID", default="")
    tolerations: list[Toleration] = []

    @property
    def key(self) -> DeviceKey:
        return self.driver, self.pool, self.device


class _Devices(Struct):
    results: list[_Result] = []


class _Allocation(Struct):
    devices: _Devices = field(default_factory=_Devices)


class _Consumer(Struct):
    resource: str
    name: str
    uid: str


class _Status(Struct):
    allocation: _Allocation | None = None
    consumers: list[_Consumer] = field(name="reservedFor", default_factory=list)


class Claim(TypedObject):
    """A ResourceClaim, with its allocation and the pods or PodGroups that may use it."""

    status: _Status = field(default_factory=_Status)

    def results(self, pod: NodePod) -> list[_Result] | None:
        """Return the devices that a pod uses by this claim; None if it is not allocated for this pod."""
        allocation = self.status.allocation
        is_user = any(_is_user(pod, consumer) for consumer in self.status.consumers)
        if allocation is None or not is_user:
            return None
        return [result for result in allocation.devices.results if not result.is_admin]

    def ends_with(self, pod: NodePod) -> bool:
        """Return whether it was created for a pod, so that another pod in its place gets another claim."""
        return any(owner.uid == pod.key.uid for owner in self.metadata.owners)


_DECODER = JsonDecoder(Claim)


def decode_claim(body: bytes) -> Claim:
    """Return a ResourceClaim of resource.k8s.io/v1. Raises msgspec.MsgspecError."""
    return _DECODER.decode(body)


def claim_keys(pods: Iterable[NodePod]) -> list[ClaimKey]:
    """Return the claims that some pods name."""
    return sorted({(pod.key.namespace, name) for pod in pods for name in pod.claims if name})


def with_claimed_gpus(
    pod: NodePod, claims: Mapping[ClaimKey, Claim], gpu_ids: Mapping[DeviceKey, str]
) -> NodePod:
    """Return a pod with the GPUs of its claims. Those claims stay of which a device is not known, with an
    empty name for devices that the kubelet does not report.

    claims: those that exist. gpu_ids: see devices.decode_gpu_ids.
    """
    held, unknown, keeps_gpus = set[str](), list[str](), False
    for name in pod.claims:
        claim = claims.get((pod.key.namespace, name))
        results = None if claim is None else claim.results(pod)
        if claim is None or results is None or any(result.key not in gpu_ids for result in results):
            unknown.append(name)
        gpus = [result for result in results or () if gpu_ids.get(result.key)]
        held.update(_held_ids(gpus, gpu_ids))
        if claim is not None and gpus:
            tolerated = any(tolerates_quarantine(item) for gpu in gpus for item in gpu.tolerations)
            keeps_gpus = keeps_gpus or tolerated or not claim.ends_with(pod)
    ids = pod.gpu_ids
    if held:
        unknown.extend([""] if ids is None else [])
        ids = tuple(sorted({*(ids or ()), *held}))
    return replace(pod, gpu_ids=ids, claims=tuple(unknown), keeps_gpus=keeps_gpus)


def _held_ids(results: Iterable[_Result], gpu_ids: Mapping[DeviceKey, str]) -> Iterator[str]:
    for result in results:
        gpu_id = gpu_ids[result.key]
        is_shared = result.share and SHARED_GPU not in gpu_id
        yield f"{gpu_id}{SHARED_GPU}{result.share}" if is_shared else gpu_id


def _is_user(pod: NodePod, consumer: _Consumer) -> bool:
    """Return whether a claim is reserved for a pod, or for all pods of its PodGroup."""
    if consumer.resource == "podgroups":
        return pod.group is not None and consumer.name == pod.group.name
    return consumer.uid == pod.key.uid
