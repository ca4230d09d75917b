"""Pods with GPUs in a namespace of their own, without a kubelet, and the drains of their nodes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Self

from nodeguard.kube.action_store import actions_path
from tests.controlplane.api import ApiError
from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster
from tests.controlplane.objects import GPU
from tests.daemonset.manifests import NAMESPACE
from tests.e2e.fleet import Fleet
from tests.e2e.scene import GPUS

ACTIONS = actions_path(NAMESPACE)
TEAM = "team-a"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
REPLICA_SETS = f"/apis/apps/v1/namespaces/{TEAM}/replicasets"

# A policy, beside that of marks: `%` with the mode.
DRAIN = """
drain: {mode: %s, rules: [{check: "*", when: immediately}], finishWithin: 1m}
"""


def create_namespace(cluster: Cluster) -> None:
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": TEAM}})
    cluster.until(lambda: cluster.has(SERVICE_ACCOUNT.format(TEAM)), "kube-controller-manager")


def gpu_ids(fleet: Fleet, node: str) -> list[str]:
    """Return the ids of the GPUs of a node, as its agent reports them: that of GPUS[0] first."""
    [aggregator] = fleet.aggregators
    rows = aggregator.query(f"/v1/gpus?node={node}")["components"]
    ids = {row["target"]: row["id"] for row in rows}
    return [ids[f"gpu/{address}"] for address in GPUS]


def replica_set(
    container: Mapping[str, Any] = MappingProxyType({"image": "work"}), **spec: object
) -> dict[str, Any]:
    """Return a ReplicaSet of eight pods. container, spec: more of each pod."""
    labels = {"app": "train"}
    work = {"name": "work", "resources": {"limits": {GPU: "1"}}, **container}
    return {
        "metadata": {"name": "train"},
        "spec": {
            "replicas": 8,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [work], **spec}},
        },
    }


def running_status(*gpus: str) -> dict[str, Any]:
    """Return the status of a running pod of one container with some GPUs, as a kubelet reports it. gpus: their ids."""
    devices = [{"resourceID": gpu, "health": "Healthy"} for gpu in gpus]
    container = {
        "name": "work", "image": "work", "imageID": "", "ready": True, "restartCount": 0,
        "state": {"running": {"startedAt": "2026-11-01T00:00:00Z"}},
        **({"allocatedResourcesStatus": [{"name": GPU, "resources": devices}]} if devices else {}),
    }  # fmt: skip
    ready = {"type": "Ready", "status": "True"}
    return {"status": {"phase": "Running", "containerStatuses": [container], "conditions": [ready]}}


class PodThread(ABC):
    """Looks at all pods of a namespace again and again in a thread of its own, as a kubelet does. every: seconds
    between.
    """

    def __init__(self, cluster: Cluster, every: float, namespace: str = TEAM) -> None:
        self._cluster, self._every = cluster, every
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang()

    def hang(self) -> None:
        """Look at no pod any more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            for pod in self._cluster.api.get(self._pods)["items"]:
                with suppress(OSError, ApiError):
                    self._sync(pod)

    @abstractmethod
    def _sync(self, pod: Any) -> None:
        """Bring a pod a step further."""


class Kubelet(PodThread):
    """Reports that the pods of a node run, with the ids of their GPUs, and ends the pods that are deleted."""

    def __init__(self, cluster: Cluster, ids: dict[str, list[str]], namespace: str = TEAM) -> None:
        super().__init__(cluster, 0.2, namespace)
        self._free = {node: list(gpus) for node, gpus in ids.items()}
        self._held: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self.deleted: set[str] = set()

    def _sync(self, pod: Any) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        if uid in self._ended:
            return  # a controller still needs it
        if pod["metadata"].get("deletionTimestamp"):
            self.deleted.add(name)
            self._free.get(node, []).extend(self._held.pop(uid, []))
            # A Job counts it as failed only in its final phase.
            self._cluster.api.patch(f"{self._pods}/{name}/status", {"status": {"phase": "Failed"}})
            self._cluster.api.confirm_end(f"{self._pods}/{name}", uid)
            self._ended.add(uid)
        elif node in self._free and uid not in self._held:
            limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
            ids = self._held[uid] = [self._free[node].pop(0) for _ in range(int(limits.get(GPU, 0)))]
            self._cluster.api.patch(f"{self._pods}/{name}/status", running_status(*ids))


def running(cluster: Cluster, node: str) -> set[str]:
    """Return the names of the running pods of a node."""
    return {
        pod["metadata"]["name"]
        for pod in cluster.api.get(PODS)["items"]
        if pod["spec"].get("nodeName") == node
        and pod["status"]["phase"] == "Running"
        and not pod["metadata"].get("deletionTimestamp")
    }


def holder(cluster: Cluster, gpu_id: str) -> str:
    """Return the name of the pod that holds a GPU."""
    for pod in cluster.api.get(PODS)["items"]:
        for container in pod["status"].get("containerStatuses", []):
            for allocated in container.get("allocatedResourcesStatus", []):
                if any(device["resourceID"] == gpu_id for device in allocated["resources"]):
                    return str(pod["metadata"]["name"])
    raise AssertionError(f"no pod holds {gpu_id}")


def drains(cluster: Cluster) -> list[Any]:
    items: list[Any] = cluster.api.get(ACTIONS)["items"]
    return [item for item in items if item["spec"]["action"] == "Drain"]


def drain_states(cluster: Cluster) -> list[str]:
    return [item.get("status", {}).get("state", "Reserved") for item in drains(cluster)]
