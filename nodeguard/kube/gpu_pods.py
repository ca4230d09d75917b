"""The pods of one Node or of gangs, as far as a drain needs them: read on demand, for few Nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from nodeguard.kube.node_pods import FINISHED, Container, ContainerStatus, PodSpec, job_name
from nodeguard.kube.objects import OwnerReference, TypedList, TypedObject
from nodeguard.model.job import is_job_name
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import DRAIN_MARKS, NO_SCHEDULE
from nodeguard.model.pod import DRAIN_AT_ANNOTATION, DRAIN_NOW_ANNOTATION, NodePod, PodGroupKey, PodKey

# Resources of NVIDIA's device plugin: GPUs, shared GPUs and MIG devices; and the GPUs and vGPUs of virtual
# machines, with ids that name no GPU: `pgpu`, or the product in capital letters. Others of its domain may be
# network adapters, as NVIDIA's network operator names them, or GPUs of another plugin, which their ids show.
_is_gpu = re.compile(r"nvidia\.com/(p?gpu|gpu\..+|mig-.+|.*[A-Z].*)").fullmatch
_GPU_DOMAIN = "nvidia.com/"
_GPU_IDS = ("GPU-", "MIG-")

_WHOLE = re.compile(r"[0-9]{1,6}", re.ASCII).fullmatch

# More devices than a node has, for an amount with a suffix.
_MANY = 1_000_000

# Its Job has counted this many failures of its index.
_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"

# The kubelet sets it on the object of a pod that it runs from a file.
_MIRROR = "kubernetes.io/config.mirror"


class Toleration(Struct):
    """A toleration of a pod, or of a request for devices."""

    key: str = ""
    operator: str = "Equal"
    effect: str = ""


class _Spec(PodSpec):
    node: str = field(name="nodeName", default="")
    tolerations: list[Toleration] = field(default_factory=list)


class _Device(Struct):
    id: str = field(name="resourceID", default="")


class _Allocated(Struct):
    name: str
    resources: list[_Device] = []


class _ContainerStatus(ContainerStatus):
    allocated: list[_Allocated] = field(name="allocatedResourcesStatus", default_factory=list)


class _ClaimStatus(Struct):
    name: str
    claim: str = field(name="resourceClaimName", default="")


class _Mapping(Struct):
    container: str = field(name="containerName", default="")
    resource: str = field(name="resourceName", default="")


class _ExtendedClaimStatus(Struct):
    claim: str = field(name="resourceClaimName", default="")
    mappings: list[_Mapping] = field(name="requestMappings", default_factory=list)


class _Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""


class _Status(Struct):
    phase: str = ""
    containers: list[_ContainerStatus] = field(name="containerStatuses", default_factory=list)
    init_containers: list[_ContainerStatus] = field(name="initContainerStatuses", default_factory=list)
    conditions: list[_Condition] = []
    claims: list[_ClaimStatus] = field(name="resourceClaimStatuses", default_factory=list)
    # The claim that the scheduler creates for resources that a DRA driver has in place of a device plugin.
    extended: _ExtendedClaimStatus | None = field(name="extendedResourceClaimStatus", default=None)


class _Pod(TypedObject):
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_DECODER = JsonDecoder(TypedList[_Pod])


def decode_gpu_pods(body: bytes) -> tuple[NodePod, ...]:
    """Return the pods of a list that are not finished. Raises msgspec.MsgspecError."""
    return decode_page(body)[0]


def decode_page(body: bytes) -> tuple[tuple[NodePod, ...], str]:
    """Return the pods of a page of a list that are not finished, and the token of the next page, empty for
    none. Raises msgspec.MsgspecError.
    """
    page = _DECODER.decode(body)
    pods = (_node_pod(pod) for pod in page.items or ())
    return tuple(pod for pod in pods if pod is not None), page.metadata.continue_token


def _node_pod(pod: _Pod) -> NodePod | None:
    if pod.status.phase in FINISHED:
        return None
    meta, spec, status = pod.metadata, pod.spec, pod.status
    mappings = status.extended.mappings if status.extended is not None else ()
    claimed = {(item.container, item.resource) for item in mappings}
    holders = tuple(_holders(pod))
    with_gpus = {
        container.name
        for container in holders
        if any((container.name, resource) not in claimed for resource in _gpus(container))
    }
    statuses = (*status.containers, *status.init_containers)
    job = job_name(meta, spec)
    controller = next((owner for owner in meta.owners if owner.controller), OwnerReference())
    failures = meta.annotations.get(_INDEX_FAILURES, "")
    return NodePod(
        PodKey(meta.namespace, meta.name, meta.uid, job if is_job_name(job) else ""),
        meta.version,
        spec.node,
        gpu_ids=_gpu_ids({container.name for container in holders}, with_gpus, statuses),
        claims=tuple(_claims(pod)),
        labels=meta.labels,
        controller=controller.kind,
        batch_job=controller.name if controller.is_job else "",
        index_failures=int(failures) if _WHOLE(failures) else 0,
        group=_group(pod),
        is_static=_MIRROR in meta.annotations,
        tolerates_quarantine=any(map(tolerates_quarantine, spec.tolerations)),
        has_started=_has_started(pod),
        is_ready=any(item.type == "Ready" and item.status == "True" for item in status.conditions),
        is_terminating=bool(meta.deleted_at),
        is_evicted=any(map(_is_eviction, status.conditions)),
        drain_at=meta.annotations.get(DRAIN_AT_ANNOTATION, ""),
        agrees_to_leave=meta.annotations.get(DRAIN_NOW_ANNOTATION) == "true",
    )


def _group(pod: _Pod) -> PodGroupKey | None:
    group = pod.spec.scheduling_group
    return PodGroupKey(pod.metadata.namespace, group.name) if group is not None and group.name else None


def _claims(pod: _Pod) -> Iterator[str]:
    """Yield the names of the ResourceClaims of a pod; an empty one for a claim that is not created yet."""
    created = {status.name: status.claim for status in pod.status.claims}
    for claim in pod.spec.claims:
        # A status without a name: the pod needs none.
        if created.get(claim.name) != "":
            yield claim.claim or created.get(claim.name, "")
    if pod.status.extended is not None:
        yield pod.status.extended.claim


def _has_started(pod: _Pod) -> bool:
    return pod.status.phase != "Pending"


def _holders(pod: _Pod) -> Iterator[Container]:
    """Yield the containers of a pod that hold their devices now."""
    spec, status = pod.spec, pod.status
    yield from spec.containers
    # The phase changes once all init containers have ended; until then, one that failed starts again.
    ended = {item.name for item in status.init_containers if _has_started(pod) and item.state.terminated}
    # The kubelet gives the devices of an init container to the later containers that ask for as many.
    passed_on = Counter[str]()
    for container in spec.containers:
        passed_on.update(_gpus(container))
    for container in spec.init_containers:
        is_first = container.restarts != "Always"
        if not (is_first and (container.name in ended or _gpus(container) <= passed_on)):
            yield container


def _gpus(container: Container) -> Counter[str]:
    """Return how many GPUs a container asks for, by resource. The API server stores whole numbers, large ones
    with a suffix, such as `1k`.
    """
    amounts = {
        name: str(amount)
        for name, amount in container.resources.limits.items()
        if _is_gpu(name) and str(amount) != "0"
    }
    return Counter({name: int(text) if _WHOLE(text) else _MANY for name, text in amounts.items()})


def _gpu_ids(
    holders: set[str], with_gpus: set[str], statuses: Iterable[_ContainerStatus]
) -> tuple[str, ...] | None:
    """Return the ids of the GPUs that some containers hold; None if one that asks for GPUs reports none.
    with_gpus: those that do.
    """
    ids: dict[str, set[str]] = {}
    for status in statuses:
        for allocated in status.allocated if status.name in holders else ():
            # The kubelet prefixes the resource of a claim with `claim:`.
            if allocated.name.startswith(_GPU_DOMAIN):
                names = (device.id for device in allocated.resources)
                ids.setdefault(status.name, set()).update(name for name in names if name.startswith(_GPU_IDS))
    if any(not ids.get(name) for name in with_gpus):
        return None
    return tuple(sorted(set().union(*ids.values())))


def tolerates_quarantine(toleration: Toleration) -> bool:
    """Return whether a toleration may match the taint of a quarantine, which may have any fault class."""
    keys = {"", *(mark.key for mark in DRAIN_MARKS)}
    is_of_taint = toleration.key in keys and toleration.effect in {"", NO_SCHEDULE}
    return is_of_taint and (toleration.key != "" or toleration.operator == "Exists")


def _is_eviction(condition: _Condition) -> bool:
    is_target = condition.type == "DisruptionTarget" and condition.status == "True"
    return is_target and condition.reason == "EvictionByEvictionAPI"
