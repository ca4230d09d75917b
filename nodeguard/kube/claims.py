"""ResourceClaims of the pods of one Node, for a drain: which GPUs a DRA driver allocated to a pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from nodeguard.kube.devices import DeviceKey
from nodeguard.kube.gpu_pods import Toleration, tolerates_quarantine
from nodeguard.kube.objects import TypedObject
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.pod import SHARED_GPU, NodePod, PodGroupKey

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
    uid: str


class _Status(Struct):
    allocation: _Allocation | None = None
    consumers: list[_Consumer] = field(name="reservedFor", default_factory=list)


class Claim(TypedObject):
    """A ResourceClaim, with its allocation and the pods or PodGroups that may use it."""

    status: _Status = field(default_factory=_Status)

    def results(self, pod: NodePod, group_uid: str) -> list[_Result] | None:
        """Return the devices that a pod uses by this claim; None if it is not allocated for this pod.
        group_uid: of the PodGroup of the pod; empty for none.
        """
        allocation = self.status.allocation
        uids = {"pods": pod.key.uid, "podgroups": group_uid}
        is_user = any(item.uid and item.uid == uids.get(item.resource) for item in self.status.consumers)
        if allocation is None or not is_user:
            return None
        return [result for result in allocation.devices.results if not result.is_admin]

    @property
    def is_for_groups(self) -> bool:
        """Return whether it is reserved for a PodGroup."""
        return any(consumer.resource == "podgroups" for consumer in self.status.consumers)

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


def consuming_groups(pods: Iterable[NodePod], claims: Mapping[ClaimKey, Claim]) -> list[PodGroupKey]:
    """Return the PodGroups of the pods with a claim that is reserved for a PodGroup. claims: those that
    exist.
    """
    return sorted(
        {
            pod.group
            for pod in pods
            for name in pod.claims
            if pod.group is not None
            and (claim := claims.get((pod.key.namespace, name))) is not None
            and claim.is_for_groups
        }
    )


def with_claimed_gpus(
    pod: NodePod,
    claims: Mapping[ClaimKey, Claim],
    gpu_ids: Mapping[DeviceKey, str],
    group_uids: Mapping[PodGroupKey, str],
) -> NodePod:
    """Return a pod with the GPUs of its claims. Those claims stay of which a device is not known, with an
    empty name for devices that the kubelet does not report.

    claims: those that exist. gpu_ids: see devices.decode_gpu_ids. group_uids: of the PodGroups that exist of
    those that consuming_groups returns: one of the same name may have been created after the claim.
    """
    group_uid = group_uids.get(pod.group, "") if pod.group is not None else ""
    held, unknown, keeps_gpus = set[str](), list[str](), False
    for name in pod.claims:
        claim = claims.get((pod.key.namespace, name))
        results = None if claim is None else claim.results(pod, group_uid)
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
