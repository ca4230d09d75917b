"""The control plane of the tests is a real one."""

from __future__ import annotations

import itertools
import os
import signal
import threading

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import GPU, clear, clear_cluster, node, pod

TAINT = {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"}


def usable_node(controlplane: Cluster, name: str) -> None:
    """Create a Node, and wait until the controllers have removed its not-ready taint."""
    controlplane.api.post("/api/v1/nodes", node(name))
    path = f"/api/v1/nodes/{name}"
    controlplane.until(
        lambda: not controlplane.api.get(path)["spec"].get("taints"), "kube-controller-manager"
    )


def scheduled(controlplane: Cluster, namespace: str, name: str) -> Object:
    """Return a pod after the scheduler has processed it: bound or unschedulable."""

    def processed() -> Object | None:
        current = controlplane.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        conditions = current["status"].get("conditions", [])
        return current if any(item["type"] == "PodScheduled" for item in conditions) else None

    result = controlplane.until(processed, "kube-scheduler")
    assert result is not None
    return result


def node_of(controlplane: Cluster, namespace: str, name: str) -> object:
    """Return the Node of a pod after it is bound. The scheduler may see the pod before the Node, and report it as
    unschedulable first.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    return controlplane.until(lambda: controlplane.api.get(path)["spec"].get("nodeName"), "kube-scheduler")


def rejected(controlplane: Cluster, namespace: str) -> Object:
    """Create pods until the scheduler rejects one, and return it. The scheduler may see a pod before a taint."""
    for number in itertools.count():
        controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod(f"after-{number}", gpus=1))
        result = scheduled(controlplane, namespace, f"after-{number}")
        if "nodeName" not in result["spec"]:
            return result
    raise AssertionError


def test_pods_are_scheduled_on_created_nodes(controlplane: Cluster, namespace: str) -> None:
    usable_node(controlplane, "node-1")
    controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("one"))
    assert node_of(controlplane, namespace, "one") == "node-1"

    controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("too-many", gpus=8))
    (condition,) = scheduled(controlplane, namespace, "too-many")["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert GPU in condition["message"]


def test_a_taint_keeps_pods_off(controlplane: Cluster, namespace: str) -> None:
    usable_node(controlplane, "node-1")
    controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("before"))
    assert node_of(controlplane, namespace, "before") == "node-1"

    controlplane.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": [TAINT]}})
    after = rejected(controlplane, namespace)
    assert "untolerated taint" in after["status"]["conditions"][0]["message"]

    controlplane.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": []}})
    assert node_of(controlplane, namespace, after["metadata"]["name"]) == "node-1"


def test_each_test_begins_without_nodes(controlplane: Cluster) -> None:
    assert controlplane.api.get("/api/v1/nodes")["items"] == []
    assert controlplane.api.get("/api/v1/pods")["items"] == []


def test_no_pod_is_scheduled_to_a_node_of_an_earlier_test(controlplane: Cluster, namespace: str) -> None:
    usable_node(controlplane, "earlier")
    controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("before"))
    assert node_of(controlplane, namespace, "before") == "earlier"

    scheduler = controlplane.processes.pid("kube-scheduler")
    os.kill(scheduler, signal.SIGSTOP)
    resume = threading.Timer(1, os.kill, (scheduler, signal.SIGCONT))
    resume.start()
    clear_cluster(controlplane)
    usable_node(controlplane, "later")
    controlplane.api.post("/api/v1/namespaces/default/pods", pod("after"))
    assert node_of(controlplane, "default", "after") == "later"
    resume.join()


def test_kubectl_connects_to_the_cluster(controlplane: Cluster) -> None:
    controlplane.api.post("/api/v1/nodes", node("node-1", labels={"rack": "r1"}))
    assert controlplane.kubectl("get", "nodes", "-l", "rack=r1", "-o", "name") == "node/node-1\n"
    assert "Server Version: v1.37.1" in controlplane.kubectl("version")


def test_two_clusters_are_independent(shared_api_server: Cluster, shared_older_api_server: Cluster) -> None:
    for cluster in (shared_api_server, shared_older_api_server):
        clear(cluster.api)
    shared_api_server.api.post("/api/v1/nodes", node("node-1"))
    assert shared_older_api_server.url != shared_api_server.url
    assert shared_older_api_server.api.get("/api/v1/nodes")["items"] == []


def test_a_restarted_api_server_has_lost_no_data(shared_api_server: Cluster) -> None:
    clear(shared_api_server.api)
    shared_api_server.api.post("/api/v1/nodes", node("node-1"))
    shared_api_server.stop("kube-apiserver")
    shared_api_server.start("kube-apiserver")
    shared_api_server.ready()
    assert shared_api_server.api.get("/api/v1/nodes/node-1")["status"]["allocatable"][GPU] == "8"
