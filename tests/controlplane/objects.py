"""Nodes and pods for tests, with the status that a kubelet and a device plugin report."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tests.controlplane.api import Api, Object
from tests.controlplane.cluster import Cluster

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None) -> Object:
    """Return a Node that is ready, with capacity for pods and with GPUs."""
    capacity = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "created by a test"}
            ],
        },
    }


def pod(name: str, gpus: int = 1, labels: Mapping[str, str] | None = None) -> Object:
    """Return a pod that requests GPUs."""
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"containers": [{"name": "work", "image": "work", "resources": resources}]},
    }


def clear(api: Api) -> None:
    """Delete all Nodes, all pods, and the namespaces of tests."""
    api.delete("/api/v1/nodes")
    for namespace in api.get("/api/v1/namespaces")["items"]:
        name = namespace["metadata"]["name"]
        api.delete(f"/api/v1/namespaces/{name}/pods")
        if (
            name != "default"
            and not name.startswith("kube-")
            and not namespace["metadata"].get("deletionTimestamp")
        ):
            api.delete(f"/api/v1/namespaces/{name}")


def clear_cluster(cluster: Cluster) -> None:
    """Clear a whole control plane, and wait until its scheduler has no Node. It watches Nodes and pods apart: on a busy
    machine it would bind the next test's pods to a Node that is deleted.
    """
    had_nodes = bool(cluster.api.get("/api/v1/nodes?limit=1")["items"])
    clear(cluster.api)
    if had_nodes:
        for number in itertools.count():
            if _finds_no_node(cluster, f"probe-{number}"):
                return


def _finds_no_node(cluster: Cluster, name: str) -> bool:
    """Return whether the scheduler rejects a pod because there is no Node at all."""
    pods = "/api/v1/namespaces/default/pods"

    def processed() -> Object | None:
        current = cluster.api.get(f"{pods}/{name}")
        return current if "nodeName" in current["spec"] or current["status"].get("conditions") else None

    cluster.api.post(pods, pod(name, gpus=0))
    probe = cluster.until(processed, "kube-scheduler")
    cluster.api.delete(f"{pods}/{name}")
    messages = [condition.get("message") for condition in (probe or {})["status"].get("conditions", [])]
    return messages == ["no nodes available to schedule pods"]
