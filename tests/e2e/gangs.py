"""Nodes behind leaf switches on a real control plane, and the pods of a namespace: gangs, and single-node work.

A gang takes whole nodes, all of them behind one leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from tests.controlplane.api import Object
from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster
from tests.controlplane.controllers import QUEUED
from tests.controlplane.objects import node, pod
from tests.e2e.bulk_nodes import wait_until_schedulable

# The labels of a leaf switch and of the pod of leaves that it belongs to.
LEAF, POD = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
LEAVES = tuple(f"leaf-{number}" for number in range(8))
NODES, GPUS = 8, 8

# Nodes of a gang, each of which it takes whole.
SIZE = 4

# A label of all these nodes, and the one that names a pod's gang.
POOL = {"tests/pool": "gpu"}
GANG = "tests/gang"

PODGROUPS = "/apis/scheduling.k8s.io/v1beta1"
JOBS = "/apis/batch/v1"

_FILLS = {"nodeguard.dev/fill": "true"}

Result = TypeVar("Result")


class GangNodes:
    """The nodes of a cluster. leaves, uids: leaf switch and uid of each node, by the node's name."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.leaves = {f"{leaf}-{number}": leaf for leaf in LEAVES for number in range(NODES)}
        self.uids: dict[str, str] = {}
        for name, leaf in self.leaves.items():
            self._add(name, GPUS, {LEAF: leaf, POD: f"pod-{LEAVES.index(leaf) // 4}", **POOL})
        wait_until_schedulable(cluster)

    @contextmanager
    def temporary_nodes(self, leaf: str, count: int, gpus: int) -> Iterator[list[str]]:
        """Add nodes behind another leaf for the context. gpus: number of GPUs that a device plugin would publish."""
        names = [f"{leaf}-{number}" for number in range(count)]
        try:
            for name in names:
                self.leaves[name] = leaf
                self._add(name, gpus, {LEAF: leaf, POD: "pod-more"})
            wait_until_schedulable(self.cluster)
            yield names
        finally:
            for name in names:
                self.cluster.api.delete(f"/api/v1/nodes/{name}")
                del self.leaves[name], self.uids[name]

    def nodes_behind(self, *leaves: str) -> list[str]:
        """Return the names of the nodes behind these leaves."""
        return [name for name, leaf in self.leaves.items() if leaf in leaves]

    def until(self, ask: Callable[[], Result], component: str = "kube-scheduler") -> Result:
        """Return the first true value of `ask`. component: its log is shown on a timeout."""
        return self.cluster.until(ask, component)

    def _add(self, name: str, gpus: int, labels: Mapping[str, str]) -> None:
        self.uids[name] = self.cluster.api.post("/api/v1/nodes", node(name, gpus, labels))["metadata"]["uid"]


class Namespace:
    """A namespace with pods that may fill degraded leaves."""

    def __init__(self, floor: GangNodes, name: str) -> None:
        self.nodes = floor
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"
        labels = {**_FILLS, **QUEUED}
        floor.cluster.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        floor.until(lambda: floor.cluster.has(SERVICE_ACCOUNT.format(name)))

    def post(self, group: str, kind: str, manifest: Object) -> None:
        self.nodes.cluster.api.post(f"{group}/namespaces/{self.name}/{kind}", manifest)

    def get(self, group: str, kind: str) -> list[Object]:
        items: list[Object] = self.nodes.cluster.api.get(f"{group}/namespaces/{self.name}/{kind}")["items"]
        return items

    def create_pod(
        self, name: str, gpus: int = GPUS, labels: Mapping[str, str] | None = None, leaf: str = ""
    ) -> None:
        """Create a pod without a gang. leaf: behind which it must run, empty for any."""
        self.post("/api/v1", "pods", with_leaf(leaf, pod(name, gpus, labels)))

    def delete_pods(self, *names: str) -> None:
        """Delete pods."""
        for name in names:
            self.nodes.cluster.api.delete(f"{self.path}/pods/{name}")

    def bound_pods(self) -> dict[str, str]:
        """Return the nodes of bound pods without a gang, by the pods' names."""
        pods = [item for item in self._pods() if not _gang(item) and _node(item)]
        return {item["metadata"]["name"]: _node(item) for item in pods}

    def running_pods(self) -> dict[str, str]:
        """Return the nodes of running pods, by the pods' names."""
        pods = [item for item in self._pods() if item["status"]["phase"] == "Running"]
        return {item["metadata"]["name"]: _node(item) for item in pods}

    def gang_nodes(self) -> dict[str, list[str]]:
        """Return the nodes of the bound pods of each gang, by the gangs' names."""
        nodes: dict[str, list[str]] = {}
        for item in self._pods():
            if _gang(item) and _node(item):
                nodes.setdefault(_gang(item), []).append(_node(item))
        return nodes

    def placed_gangs(self) -> dict[str, str]:
        """Return the leaf of each gang with all pods bound. Raises ValueError for a gang behind two leaves."""
        leaves = {}
        for gang, names in self.gang_nodes().items():
            [leaf] = {self.nodes.leaves[name] for name in names}
            if len(set(names)) == SIZE:
                leaves[gang] = leaf
        return leaves

    def scheduling_error(self, name: str) -> str:
        """Return the reason why a pod is not bound; empty if there is none."""
        conditions = self.nodes.cluster.api.get(f"{self.path}/pods/{name}")["status"].get("conditions", [])
        return next((item["message"] for item in conditions if item["type"] == "PodScheduled"), "")

    def clear(self) -> None:
        """Delete everything in the namespace, and the namespace."""
        cluster, pods = self.nodes.cluster, f"{self.path}/pods"
        cluster.api.delete(f"{JOBS}/namespaces/{self.name}/jobs")
        # Pending pods first: the scheduler would bind them to the nodes that the others free.
        cluster.api.delete(f"{pods}?fieldSelector=spec.nodeName=")
        cluster.api.delete(pods)
        cluster.api.delete(f"{PODGROUPS}/namespaces/{self.name}/podgroups")
        cluster.until(lambda: not self._pods(), "kube-controller-manager")
        cluster.api.delete(self.path)

    def _pods(self) -> list[Object]:
        return self.get("/api/v1", "pods")


def with_leaf(leaf: str, manifest: Object) -> Object:
    """Return a pod that must run behind a leaf; an empty leaf means any."""
    return {**manifest, "spec": {**manifest["spec"], "nodeSelector": {LEAF: leaf} if leaf else {}}}


def _node(item: Object) -> str:
    name: str = item["spec"].get("nodeName", "")
    return name


def _gang(item: Object) -> str:
    name: str = item["metadata"].get("labels", {}).get(GANG, "")
    return name
