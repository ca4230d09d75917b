"""Racks of nodes on a real control plane, gangs of whole nodes that want to stay within one, and single-node work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from tests.controlplane.api import Object
from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster
from tests.controlplane.objects import node, pod
from tests.controlplane.queueing import QUEUED
from tests.e2e.minted import settled

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

Said = TypeVar("Said")


class Floor:
    """The nodes of a cluster. leaves: by the nodes' names. uids: theirs, too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.leaves = {f"{leaf}-{number}": leaf for leaf in LEAVES for number in range(NODES)}
        self.uids: dict[str, str] = {}
        for name, leaf in self.leaves.items():
            self._join(name, GPUS, {LEAF: leaf, POD: f"pod-{LEAVES.index(leaf) // 4}", **POOL})
        settled(cluster)

    @contextmanager
    def more(self, leaf: str, count: int, gpus: int) -> Iterator[list[str]]:
        """For a while, so many nodes behind one leaf more. gpus: as many as a device plugin would tell of."""
        names = [f"{leaf}-{number}" for number in range(count)]
        try:
            for name in names:
                self.leaves[name] = leaf
                self._join(name, gpus, {LEAF: leaf, POD: "pod-more"})
            settled(self.cluster)
            yield names
        finally:
            for name in names:
                self.cluster.api.delete(f"/api/v1/nodes/{name}")
                del self.leaves[name], self.uids[name]

    def behind(self, *leaves: str) -> list[str]:
        """Names of the nodes behind these leaves."""
        return [name for name, leaf in self.leaves.items() if leaf in leaves]

    def until(self, ask: Callable[[], Said], by: str = "kube-scheduler") -> Said:
        """The first answer that is not empty. by: whose log is shown where none comes."""
        return self.cluster.until(ask, by)

    def _join(self, name: str, gpus: int, labels: Mapping[str, str]) -> None:
        self.uids[name] = self.cluster.api.post("/api/v1/nodes", node(name, gpus, labels))["metadata"]["uid"]


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

    def work(
        self,
        name: str,
        gpus: int = GPUS,
        labels: Mapping[str, str] | None = None,
        leaf: str = "",
    ) -> None:
        """A pod that is no gang's. leaf: behind which it has to be, where it matters."""
        self.post("/api/v1", "pods", behind(leaf, pod(name, gpus, labels)))

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
        return next((said["message"] for said in told if said["type"] == "PodScheduled"), "")

    def clear(self) -> None:
        """Everything in it goes."""
        cluster, pods = self.floor.cluster, f"{self.path}/pods"
        cluster.api.delete(f"{JOBS}/namespaces/{self.name}/jobs")
        # First those that wait: they would be placed where others go.
        cluster.api.delete(f"{pods}?fieldSelector=spec.nodeName=")
        cluster.api.delete(pods)
        cluster.api.delete(f"{PODGROUPS}/namespaces/{self.name}/podgroups")
        cluster.until(lambda: not self._pods(), "kube-controller-manager")
        cluster.api.delete(self.path)

    def _pods(self) -> list[Object]:
        return self.get("/api/v1", "pods")


def behind(leaf: str, made: Object) -> Object:
    """A pod that has to be behind a leaf; anywhere, where none is named."""
    return {**made, "spec": {**made["spec"], "nodeSelector": {LEAF: leaf} if leaf else {}}}


def _node(one: Object) -> str:
    found: str = one["spec"].get("nodeName", "")
    return found


def _gang(one: Object) -> str:
    found: str = one["metadata"].get("labels", {}).get(GANG, "")
    return found
