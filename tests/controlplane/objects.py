"""Nodes and pods as tests need them: what a kubelet and a device plugin would say, said by hand."""

from __future__ import annotations

from collections.abc import Mapping

from tests.controlplane.api import Api, Object

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None) -> Object:
    """A Node that is ready, with room for pods and with GPUs."""
    room = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made by a test"}
            ],
        },
    }


def pod(name: str, gpus: int = 1, labels: Mapping[str, str] | None = None) -> Object:
    """A pod that asks for GPUs."""
    ask = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"containers": [{"name": "work", "image": "work", "resources": ask}]},
    }


def clear(api: Api) -> None:
    """Remove every Node, every pod, and the namespaces that tests made."""
    api.delete("/api/v1/nodes")
    for space in api.get("/api/v1/namespaces")["items"]:
        name = space["metadata"]["name"]
        api.delete(f"/api/v1/namespaces/{name}/pods")
        if (
            name != "default"
            and not name.startswith("kube-")
            and not space["metadata"].get("deletionTimestamp")
        ):
            api.delete(f"/api/v1/namespaces/{name}")
