"""The two gang schedulers: PodGroups of kube-scheduler, and Jobs that Kueue queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.kueue_process import KUEUE
from tests.controlplane.objects import GPU, pod
from tests.e2e.gangs import GANG, GPUS, JOBS, LEAF, POD, PODGROUPS, POOL, SIZE, Namespace, with_leaf

# Label with which Kueue queues a Job or a pod.
QUEUE = {"kueue.x-k8s.io/queue-name": "gpu"}


class GangScheduler(Protocol):
    """A scheduler of gangs, each of which takes SIZE whole nodes behind one leaf. component: that places them."""

    component: str

    def submit(self, namespace: Namespace, names: Iterable[str]) -> None: ...

    def waiting_gangs(self, namespace: Namespace) -> set[str]:
        """Return the names of the gangs that were tried and cannot be placed now."""
        ...


class PodGroupGangs:
    """Gangs as PodGroups, which kube-scheduler places."""

    component = "kube-scheduler"

    def submit(self, namespace: Namespace, names: Iterable[str], leaf: str = "") -> None:
        """Create PodGroups with their pods. leaf: behind which they must run, empty for any."""
        for name in names:
            whole, close = {"gang": {"minCount": SIZE}}, {"topology": [{"key": LEAF}]}
            spec = {"schedulingPolicy": whole, "schedulingConstraints": close}
            group = {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name},
            }
            namespace.post(PODGROUPS, "podgroups", {**group, "spec": spec})
            for number in range(SIZE):
                member = pod(f"{name}-{number}", GPUS, {GANG: name})
                member["spec"]["schedulingGroup"] = {"podGroupName": name}
                namespace.post("/api/v1", "pods", with_leaf(leaf, member))

    def waiting_gangs(self, namespace: Namespace) -> set[str]:
        groups = namespace.get(PODGROUPS, "podgroups")
        unscheduled = [group for group in groups if _status(group, "PodGroupInitiallyScheduled") == "False"]
        return {group["metadata"]["name"] for group in unscheduled}


class KueueGangs:
    """Gangs as Jobs, which Kueue places by its Topology."""

    component = "kueue"

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

    def create_queue(self, namespace: Namespace) -> None:
        """Create the queue of a namespace."""
        namespace.post(KUEUE, "localqueues", _queueing("LocalQueue", {"clusterQueue": "gpu"}))

    def submit(self, namespace: Namespace, names: Iterable[str]) -> None:
        self.create_queue(namespace)
        for name in names:
            namespace.post(JOBS, "jobs", _job(name))

    def waiting_gangs(self, namespace: Namespace) -> set[str]:
        # Of several equal workloads, Kueue tries one and reports the result for that one only.
        workloads = namespace.get(KUEUE, "workloads")
        pending = [workload for workload in workloads if "admission" not in workload.get("status", {})]
        tried = any(_status(workload, "QuotaReserved") == "False" for workload in pending)
        return {workload["metadata"]["ownerReferences"][0]["name"] for workload in pending if tried}


def _queueing(kind: str, spec: Object) -> Object:
    header = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "gpu"}}
    return {**header, "spec": spec}


def _job(name: str) -> Object:
    template = pod(name, GPUS, {GANG: name})
    spec = {**template["spec"], "restartPolicy": "Never"}
    placed = {"labels": {GANG: name}, "annotations": {"kueue.x-k8s.io/podset-required-topology": LEAF}}
    count = {"parallelism": SIZE, "completions": SIZE, "completionMode": "Indexed"}
    meta = {"name": name, "labels": QUEUE}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    return {**job, "spec": {**count, "template": {"metadata": placed, "spec": spec}}}


def _status(item: Object, condition: str) -> str:
    """Return the status of a condition; empty if the object has no such condition."""
    conditions = item.get("status", {}).get("conditions", [])
    return next((entry["status"] for entry in conditions if entry["type"] == condition), "")
