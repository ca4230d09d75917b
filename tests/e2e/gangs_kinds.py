"""Two ways to have gangs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import GPU, pod
from tests.controlplane.queueing import KUEUE
from tests.e2e.gangs import GANG, GPUS, JOBS, LEAF, POD, PODGROUPS, POOL, SIZE, Space, behind

# What has Kueue queue a Job or a pod.
QUEUE = {"kueue.x-k8s.io/queue-name": "gpu"}


class Gangs(Protocol):
    """A way to have gangs: each of so many pods, which take whole nodes behind one leaf or none. by: who places them."""

    by: str

    def submit(self, space: Space, names: Iterable[str]) -> None: ...

    def waiting(self, space: Space) -> set[str]:
        """Names of the gangs that were looked at and cannot be placed now."""
        ...


class Native:
    """PodGroups, which kube-scheduler places itself."""

    by = "kube-scheduler"

    def submit(self, space: Space, names: Iterable[str], leaf: str = "") -> None:
        """leaf: behind which they have to be, where it matters."""
        for name in names:
            whole, close = {"gang": {"minCount": SIZE}}, {"topology": [{"key": LEAF}]}
            spec = {"schedulingPolicy": whole, "schedulingConstraints": close}
            made = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
            space.post(PODGROUPS, "podgroups", {**made, "spec": spec})
            for number in range(SIZE):
                member = pod(f"{name}-{number}", GPUS, {GANG: name})
                member["spec"]["schedulingGroup"] = {"podGroupName": name}
                space.post("/api/v1", "pods", behind(leaf, member))

    def waiting(self, space: Space) -> set[str]:
        found = space.get(PODGROUPS, "podgroups")
        return {
            one["metadata"]["name"] for one in found if _says(one, "PodGroupInitiallyScheduled") == "False"
        }


class Queued:
    """Jobs, which Kueue places by its Topology."""

    by = "kueue"

    def __init__(self, cluster: Cluster) -> None:
        levels = [{"nodeLabel": label} for label in (POD, LEAF, "kubernetes.io/hostname")]
        covered = {"name": "gpu", "resources": [{"name": GPU, "nominalQuota": 10_000}]}
        group = {"coveredResources": [GPU], "flavors": [covered]}
        for kind, plural, spec in (
            ("Topology", "topologies", {"levels": levels}),
            ("ResourceFlavor", "resourceflavors", {"nodeLabels": POOL, "topologyName": "gpu"}),
            ("ClusterQueue", "clusterqueues", {"namespaceSelector": {}, "resourceGroups": [group]}),
        ):
            cluster.api.post(f"{KUEUE}/{plural}", _queueing(kind, spec))

    def open(self, space: Space) -> None:
        """Let what is in a namespace be queued."""
        space.post(KUEUE, "localqueues", _queueing("LocalQueue", {"clusterQueue": "gpu"}))

    def submit(self, space: Space, names: Iterable[str]) -> None:
        self.open(space)
        for name in names:
            space.post(JOBS, "jobs", _job(name))

    def waiting(self, space: Space) -> set[str]:
        # Of several that are alike it looks at one, and says it of that one alone.
        left = [one for one in space.get(KUEUE, "workloads") if "admission" not in one.get("status", {})]
        told = any(_says(one, "QuotaReserved") == "False" for one in left)
        return {one["metadata"]["ownerReferences"][0]["name"] for one in left if told}


def _queueing(kind: str, spec: Object) -> Object:
    made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "gpu"}}
    return {**made, "spec": spec}


def _job(name: str) -> Object:
    template = pod(name, GPUS, {GANG: name})
    spec = {**template["spec"], "restartPolicy": "Never"}
    placed = {"labels": {GANG: name}, "annotations": {"kueue.x-k8s.io/podset-required-topology": LEAF}}
    count = {"parallelism": SIZE, "completions": SIZE, "completionMode": "Indexed"}
    meta = {"name": name, "labels": QUEUE}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    return {**job, "spec": {**count, "template": {"metadata": placed, "spec": spec}}}


def _says(one: Object, condition: str) -> str:
    """The status of a condition; empty where there is none."""
    told = one.get("status", {}).get("conditions", [])
    return next((said["status"] for said in told if said["type"] == condition), "")
