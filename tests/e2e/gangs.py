"""Racks of nodes on a real control plane, gangs of whole nodes that want to stay within one, and single-node work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from tests.controlplane.api import Object
from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster
from tests.controlplane.objects import node, pod
from tests.controlplane.queueing import KUEUE, QUEUED
from tests.e2e.minted import settled

# The labels of a leaf switch and of the pod of leaves that it belongs to.
LEAF, POD = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
LEAVES = tuple(f"leaf-{number}" for number in range(8))
NODES, GPUS = 8, 8

# Nodes of a gang, each of which it takes whole.
SIZE = 4

# Nodes that one ResourceFlavor of Kueue stands for.
_POOL = {"tests/pool": "gpu"}

_GANG = "tests/gang"
_FILLS = {"nodeguard.dev/fill": "true"}

Said = TypeVar("Said")


class Floor:
    """The nodes of a cluster, by name, with the leaf of each; and a namespace that has opted in to fill."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.leaves = {f"{leaf}-{number}": leaf for leaf in LEAVES for number in range(NODES)}
        for name, leaf in self.leaves.items():
            place = {LEAF: leaf, POD: f"pod-{LEAVES.index(leaf) // 4}", **_POOL}
            cluster.api.post("/api/v1/nodes", node(name, GPUS, place))
        settled(cluster)

    def behind(self, *leaves: str) -> list[str]:
        """Names of the nodes behind these leaves."""
        return [name for name, leaf in self.leaves.items() if leaf in leaves]

    def until(self, ask: Callable[[], Said]) -> Said:
        return self.cluster.until(ask, "kube-scheduler")


class Space:
    """A namespace that wants to fill, and what is in it."""

    def __init__(self, floor: Floor, name: str) -> None:
        self.floor = floor
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"
        labels = {**_FILLS, **QUEUED}
        floor.cluster.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        floor.until(lambda: floor.cluster.has(SERVICE_ACCOUNT.format(name)))

    def post(self, group: str, kind: str, made: Object) -> None:
        self.floor.cluster.api.post(f"{group}/namespaces/{self.name}/{kind}", made)

    def get(self, group: str, kind: str) -> list[Object]:
        found: list[Object] = self.floor.cluster.api.get(f"{group}/namespaces/{self.name}/{kind}")["items"]
        return found

    def work(self, name: str, gpus: int = GPUS, labels: Mapping[str, str] | None = None) -> None:
        """A pod that is no gang's."""
        self.post("/api/v1", "pods", pod(name, gpus, labels))

    def end(self, *names: str) -> None:
        """Pods end."""
        for name in names:
            self.floor.cluster.api.delete(f"{self.path}/pods/{name}")

    def bound(self) -> dict[str, str]:
        """The nodes of pods that are no gang's, by the pods' names."""
        return {one["metadata"]["name"]: _node(one) for one in self._pods() if not _gang(one) and _node(one)}

    def members(self) -> dict[str, list[str]]:
        """The nodes of gangs of which any pod is bound, by the gangs' names."""
        found: dict[str, list[str]] = {}
        for one in self._pods():
            if _gang(one) and _node(one):
                found.setdefault(_gang(one), []).append(_node(one))
        return found

    def whole(self) -> dict[str, str]:
        """The leaf of each gang of which every pod is bound; a gang behind two leaves is an error."""
        found = {}
        for gang, names in self.members().items():
            [leaf] = {self.floor.leaves[name] for name in names}
            if len(set(names)) == SIZE:
                found[gang] = leaf
        return found

    def refused(self, name: str) -> str:
        """Why a pod is not bound; empty where nothing is said."""
        told = self.floor.cluster.api.get(f"{self.path}/pods/{name}")["status"].get("conditions", [])
        return next((one["message"] for one in told if one["type"] == "PodScheduled"), "")

    def clear(self) -> None:
        """Everything in it goes."""
        cluster = self.floor.cluster
        for path in (f"/apis/batch/v1/namespaces/{self.name}/jobs", _groups(self.name), f"{self.path}/pods"):
            cluster.api.delete(path)
        cluster.until(lambda: not self._pods(), "kube-controller-manager")
        cluster.api.delete(self.path)

    def _pods(self) -> list[Object]:
        return self.get("/api/v1", "pods")


class Gangs(Protocol):
    """A way to have gangs: each of so many pods, which take whole nodes behind one leaf or none."""

    def submit(self, space: Space, names: Iterable[str]) -> None: ...

    def waiting(self, space: Space) -> set[str]:
        """Names of the gangs that were looked at and cannot be placed now."""
        ...


class Native:
    """PodGroups, which kube-scheduler places itself."""

    def submit(self, space: Space, names: Iterable[str], wants: Mapping[str, str] | None = None) -> None:
        """wants: labels that nodes must have."""
        for name in names:
            policy: Object = {"gang": {"minCount": SIZE}}
            spec = {
                "schedulingPolicy": policy,
                "schedulingConstraints": {"topology": [{"key": LEAF}]},
            }
            made = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
            space.post("/apis/scheduling.k8s.io/v1beta1", "podgroups", {**made, "spec": spec})
            for number in range(SIZE):
                member = pod(f"{name}-{number}", GPUS, {_GANG: name})
                member["spec"]["schedulingGroup"] = {"podGroupName": name}
                member["spec"]["nodeSelector"] = dict(wants or {})
                space.post("/api/v1", "pods", member)

    def waiting(self, space: Space) -> set[str]:
        found = space.get("/apis/scheduling.k8s.io/v1beta1", "podgroups")
        return {
            one["metadata"]["name"]
            for one in found
            if any(
                (told["type"], told["status"]) == ("PodGroupInitiallyScheduled", "False")
                for told in one.get("status", {}).get("conditions", [])
            )
        }


class Queued:
    """Jobs, which Kueue places by its Topology."""

    def __init__(self, cluster: Cluster) -> None:
        levels = [{"nodeLabel": label} for label in (POD, LEAF, "kubernetes.io/hostname")]
        covered = {"name": "gpu", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 10_000}]}
        group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [covered]}
        for kind, name, spec in (
            ("Topology", "fabric", {"levels": levels}),
            ("ResourceFlavor", "gpu", {"nodeLabels": _POOL, "topologyName": "fabric"}),
            ("ClusterQueue", "gpu", {"namespaceSelector": {}, "resourceGroups": [group]}),
        ):
            plural = {"Topology": "topologies"}.get(kind, f"{kind.lower()}s")
            made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
            cluster.api.post(f"{KUEUE}/{plural}", {**made, "spec": spec})

    def submit(self, space: Space, names: Iterable[str]) -> None:
        made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "gpu"}}
        space.post(KUEUE, "localqueues", {**made, "spec": {"clusterQueue": "gpu"}})
        for name in names:
            space.post("/apis/batch/v1", "jobs", _job(name))

    def waiting(self, space: Space) -> set[str]:
        return {
            one["metadata"]["ownerReferences"][0]["name"]
            for one in space.get(KUEUE, "workloads")
            if any(
                (told["type"], told["status"]) == ("QuotaReserved", "False")
                for told in one.get("status", {}).get("conditions", [])
            )
        }


def _job(name: str) -> Object:
    template = pod(name, GPUS, {_GANG: name})
    spec = {**template["spec"], "restartPolicy": "Never"}
    placed = {"labels": {_GANG: name}, "annotations": {"kueue.x-k8s.io/podset-required-topology": LEAF}}
    count = {"parallelism": SIZE, "completions": SIZE, "completionMode": "Indexed"}
    meta = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "gpu"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    return {**job, "spec": {**count, "template": {"metadata": placed, "spec": spec}}}


def _groups(namespace: str) -> str:
    return f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups"


def _node(one: Object) -> str:
    found: str = one["spec"].get("nodeName", "")
    return found


def _gang(one: Object) -> str:
    found: str = one["metadata"].get("labels", {}).get(_GANG, "")
    return found
