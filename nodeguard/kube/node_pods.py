"""The jobs of one Node, from its pods: read on demand, for few Nodes; a watch of all pods costs too much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import decoded
from nodeguard.kube.objects import ObjectMeta, TypedList, TypedObject
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.job import NodeJob
from nodeguard.model.json_decoder import JsonDecoder

PATH = "/api/v1/pods"

# Maximum bytes of the pods of a Node, and their maximum number: a kubelet runs 110 by default.
_MAX_BYTES = 16 * 1024 * 1024
_MAX_PODS = 500

# Labels of a pod with the name of its job, and annotations with that of its pod group: the first counts.
# docs/concepts/gangs.md has the same ones. A JobSet comes before the Kueue workload that contains it.
JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "volcano.sh/job-name",
    "grove.io/podgang",
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
JOB_ANNOTATIONS = ("pod-group-name", "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

# Owners of pods that belong to the node, and are no job.
_NODE_OWNERS = frozenset({"DaemonSet", "Node"})


class Resources(Struct):
    """Resources that a container asks for."""

    limits: dict[str, str | int] = {}
    claims: list[msgspec.Raw] = []


class Container(Struct):
    """A container of the spec. restarts: `Always` for an init container that runs beside the others."""

    name: str
    resources: Resources = field(default_factory=Resources)
    restarts: str | None = field(name="restartPolicy", default=None)


class PodClaim(Struct):
    """A claim of a pod. claim: name of a ResourceClaim that the pod names; empty if it has a template."""

    name: str = ""
    claim: str = field(name="resourceClaimName", default="")


class SchedulingGroup(Struct):
    """The PodGroup of a pod."""

    name: str | None = field(name="podGroupName", default=None)


class PodSpec(Struct):
    """The containers of a pod, its claims of DRA drivers, and its PodGroup."""

    containers: list[Container] = []
    init_containers: list[Container] = field(name="initContainers", default=[])
    claims: list[PodClaim] = field(name="resourceClaims", default=[])
    scheduling_group: SchedulingGroup | None = field(name="schedulingGroup", default=None)


class Run(Struct):
    """One run of a container."""

    started: str | None = field(name="startedAt", default=None)


class ContainerState(Struct):
    """The run of a container, which goes on or has ended; neither while the container waits."""

    running: Run | None = None
    terminated: Run | None = None


class ContainerStatus(Struct):
    """The status of a container."""

    name: str
    state: ContainerState = field(default_factory=ContainerState)


class _ContainerStatus(ContainerStatus):
    last_state: ContainerState = field(name="lastState", default_factory=ContainerState)


class _Status(Struct):
    phase: str = ""
    started: str | None = field(name="startTime", default=None)
    containers: list[_ContainerStatus] = field(name="containerStatuses", default=[])


class _Pod(TypedObject):
    spec: PodSpec = field(default_factory=PodSpec)
    status: _Status = field(default_factory=_Status)


_DECODER = JsonDecoder(TypedList[_Pod])
FINISHED = frozenset({"Succeeded", "Failed"})


async def read_node_jobs(api: ApiClient, node: str) -> tuple[NodeJob, ...]:
    """Return the jobs on a Node, by its name. Raises ApiError."""
    # Without a resource version the server would read all pods of the cluster from etcd. Its cache has an
    # index of the pods by Node.
    query: dict[str, str | int] = {
        "fieldSelector": f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed",
        "resourceVersion": "0",
        "limit": _MAX_PODS,
    }
    body = await api.request("GET", PATH, query=query, max_bytes=_MAX_BYTES)
    return decoded(jobs_of_pods, body, f"the pods of Node {node}")


def jobs_of_pods(body: bytes) -> tuple[NodeJob, ...]:
    """Return the jobs of a list of pods. Only pods count that use devices and are not finished.

    A job is named by a label or an annotation, by the pod group, else by the object that controls the pod;
    without any of these, by the pod. Raises msgspec.MsgspecError.
    """
    starts: dict[str, set[float]] = {}
    for pod in (_DECODER.decode(body).items or ())[:_MAX_PODS]:
        name = job_name(pod.metadata, pod.spec)
        if name and pod.status.phase not in FINISHED and uses_devices(pod.spec):
            starts.setdefault(name, set()).update(_starts(pod))
    return tuple(NodeJob(name, tuple(sorted(starts[name]))) for name in sorted(starts))


def job_name(meta: ObjectMeta, spec: PodSpec) -> str:
    """Return the job of a pod, `NAMESPACE/NAME`; empty if it has none."""
    group = spec.scheduling_group
    owner = next((owner for owner in meta.owners if owner.controller), None)
    if owner is not None and owner.kind in _NODE_OWNERS:
        return ""
    names = (
        *(meta.labels.get(key, "") for key in JOB_LABELS),
        *(meta.annotations.get(key, "") for key in JOB_ANNOTATIONS),
        group.name if group is not None else "",
        owner.name if owner is not None else "",
        meta.name,
    )
    name = next(filter(None, names), "")
    return f"{meta.namespace}/{name}" if name else ""


def uses_devices(spec: PodSpec) -> bool:
    """Return whether a container of a pod has devices."""
    containers = (*spec.containers, *spec.init_containers)
    return bool(spec.claims) or any(map(_has_devices, containers))


def _has_devices(container: Container) -> bool:
    """Return whether a container has devices: a DRA claim, or a resource of a device plugin."""
    resources = container.resources
    return bool(resources.claims) or any(
        _is_extended(name) and str(amount) != "0" for name, amount in resources.limits.items()
    )


def _is_extended(resource: str) -> bool:
    """Return whether a resource is of a device plugin: Kubernetes' own have its domain, or none."""
    domain, slash, _ = resource.partition("/")
    return slash != "" and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _starts(pod: _Pod) -> Iterator[float]:
    """Yield when the containers with devices started, also before a restart; before the first one has
    started, when the pod did. A side container restarts without the job.
    """
    with_devices = {container.name for container in pod.spec.containers if _has_devices(container)}
    runs = (
        run
        for status in pod.status.containers
        if status.name in with_devices or not with_devices
        for run in _runs(status)
    )
    times = {parse_or_zero(run.started or "") for run in runs} - {0.0}
    yield from times or {parse_or_zero(pod.status.started or "")} - {0.0}


def _runs(status: _ContainerStatus) -> Iterable[Run]:
    runs = (status.state.running, status.state.terminated, status.last_state.terminated)
    return (run for run in runs if run is not None)
