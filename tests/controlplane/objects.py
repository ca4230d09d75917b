"""Nodes and pods for tests, with the status that a kubelet and a device plugin report."""

from __future__ import annotations

from collections.abc import Mapping

from tests.controlplane.api import Api, Object

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
