"""Pods and disruption budgets, as far as a drain reads them."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.label_selector import LabelSelector
from nodeguard.model.node import PREFIX

# The annotation with the time before which a pod is not evicted, and that of its owner, who agrees to an
# earlier eviction by the value `true`.
DRAIN_AT_ANNOTATION = f"{PREFIX}drain-at"
DRAIN_NOW_ANNOTATION = f"{PREFIX}drain-now"

# Between the id of a GPU and the part or share of it that a pod holds, as in NVIDIA's device plugin.
SHARED_GPU = "::"


class PodKey(Struct, frozen=True, order=True):
    """One pod: a later pod of the same name has another uid."""

    namespace: str
    name: str
    uid: str
    job: str = ""
    """The job that it belongs to, `NAMESPACE/NAME`; empty for none, and in a record of an earlier version."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodGroupKey(Struct, frozen=True, order=True):
    """A PodGroup: the pods of one gang."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodePod(Struct, frozen=True):
    """A pod of a node that is not finished.

    For example, a pod of a Job that holds one GPU:

        NodePod(PodKey("team-a", "train-0", "uid-7"), "812", gpu_ids=("GPU-614b",), controller="Job")
    """

    key: PodKey
    version: str
    """Its resourceVersion: an eviction names it, so that a pod that changed is judged again."""
    node: str = ""
    """Name of its Node; empty before it is bound."""
    gpu_ids: tuple[str, ...] | None = ()
    """Ids of the devices that it holds: of NVIDIA's device plugin, as the plugin names them, and of known
    claims. Empty: none. None: it holds some, and the kubelet does not report those of each container."""
    claims: tuple[str, ...] = ()
    """Names of its ResourceClaims with unknown devices. An empty name: one that is not created yet, or,
    beside the GPUs of known claims, devices that the kubelet does not report."""
    keeps_gpus: bool = False
    """Whether another pod in its place could get the same GPUs, though they have a mark of their own: it uses
    a ResourceClaim that was not created for it, or that tolerates the mark."""
    labels: dict[str, str] = {}
    controller: str = ""
    """Kind of the object that controls it, and that creates another pod in its place; empty for none."""
    batch_job: str = ""
    """Name of this object, in the namespace of the pod, if it is a Job of Kubernetes; empty for another one:
    Volcano has a kind Job, too."""
    index_failures: int = 0
    """Earlier failures of its index in an indexed Job with `backoffLimitPerIndex`."""
    group: PodGroupKey | None = None
    """Its PodGroup; None for none."""
    is_static: bool = False
    """Whether the kubelet runs it from a file: its object in the API is a mirror."""
    tolerates_quarantine: bool = False
    """Whether the mark of the node does not keep it away: another pod in its place could start here again."""
    has_started: bool = True
    """Whether its phase is past Pending: a disruption budget does not protect it before."""
    is_ready: bool = True
    """Whether its condition Ready is true: only such pods count as healthy for a disruption budget."""
    is_terminating: bool = False
    """Whether it is being deleted."""
    is_evicted: bool = False
    """Whether the eviction API ends it: condition `DisruptionTarget`, reason `EvictionByEvictionAPI`."""
    drain_at: str = ""
    """The notice of its eviction, its annotation `nodeguard.dev/drain-at`; empty for none. Its owner can
    write any text there."""
    agrees_to_leave: bool = False
    """Whether its owner agrees to an eviction before that time: annotation `nodeguard.dev/drain-now`."""


class RejectedPods(Struct, frozen=True):
    """The pods of a node that its kubelet rejected since a fault began: a device plugin that lost a GPU
    allows no new one.
    """

    count: int
    """At most MAX_REJECTED, which is this number or more."""
    latest: float
    """When the latest of them was created, in seconds since the epoch; 0 if that was not read."""
    message: str
    """The message of the kubelet about it; empty if that was not read."""


# Rejected pods of a node that are counted.
MAX_REJECTED = 500


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: LabelSelector | None
    """None matches no pod; an empty selector matches each pod of the namespace."""
    allowed: int = 0
    """Disruptions that it allows now."""
    is_current: bool = True
    """Whether `allowed` is of its present spec."""
    frees_unready: bool = False
    """Whether pods that are not ready may be evicted now, however many it allows, by its policy for them."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def selects(self, pod: NodePod) -> bool:
        """Return whether it protects a pod."""
        if pod.key.namespace != self.namespace or self.selector is None:
            return False
        return self.selector.matches(pod.labels)
