"""Pods and disruption budgets on a real control plane, for the tests of drains."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodeguard.kube.client import ApiClient
from nodeguard.kube.events import EventContent
from nodeguard.kube.eviction import KubernetesDrainCluster
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.model.eviction import EvictionState
from nodeguard.model.pod import NodePod
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import pod

NODE, OTHER = "gpu-1", "gpu-2"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Pods:
    """The pods of a Node in namespace `default`: what a drain reads and does, and what a test does."""

    def __init__(self, cluster: Cluster, api: ApiClient) -> None:
        self._cluster = cluster
        self.events: list[EventContent] = []
        self.drain = drain_cluster(api, self.events.append)

    def run(
        self,
        name: str,
        host: str = NODE,
        phase: str = "Running",
        gpu: str = "",
        *,
        is_ready: bool = True,
        **labels: str,
    ) -> None:
        """Create a pod on a Node, with the status that a kubelet reports. gpu: id of its GPU. is_ready: while it
        runs.
        """
        created = pod(name, labels=labels)
        created["spec"] |= {"nodeName": host, "terminationGracePeriodSeconds": 30}
        self._cluster.api.post(PODS, created)
        container: Object = {"name": "work", "image": "work", "imageID": "", "ready": True, "restartCount": 0}
        if gpu:
            devices = [{"resourceID": gpu, "health": "Healthy"}]
            container["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": devices}]
        status = {"phase": phase, "containerStatuses": [container]}
        self._cluster.api.patch(f"{PODS}/{name}/status", {"status": status})
        self.report_ready(name, is_ready=is_ready and phase == "Running")

    def report_ready(self, name: str, *, is_ready: bool) -> None:
        """Report whether a pod is ready."""
        ready = {"type": "Ready", "status": str(is_ready)}
        self._cluster.api.patch(
            f"{PODS}/{name}/status", {"status": {"conditions": [ready]}}, "strategic-merge"
        )

    def protect(self, name: str, min_available: int, allowed: int, policy: str = "", **labels: str) -> None:
        """Create a disruption budget, and wait until the controller has counted what it allows."""
        self.create_budget(name, min_available, labels, policy)
        self.until_allowed(name, allowed)

    def create_budget(self, name: str, minimum: int, labels: Mapping[str, str], policy: str = "") -> None:
        """Create a disruption budget. policy: for pods that are not ready; empty for the default."""
        spec: Object = {"minAvailable": minimum, "selector": {"matchLabels": labels}}
        if policy:
            spec["unhealthyPodEvictionPolicy"] = policy
        self._cluster.api.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})

    def until_allowed(self, name: str, allowed: int) -> None:
        def is_counted() -> bool:
            found = self._cluster.api.get(f"{BUDGETS}/{name}")
            status: Object = found.get("status", {})
            current = {"observedGeneration": found["metadata"]["generation"], "disruptionsAllowed": allowed}
            return current.items() <= status.items()

        self._cluster.until(is_counted, "kube-controller-manager")

    def stored(self, name: str) -> Object:
        return self._cluster.api.get(f"{PODS}/{name}")

    def annotate(self, name: str, key: str, text: str) -> None:
        """Set an annotation, as the owner of the pod does."""
        self._cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {key: text}}})

    def remove(self, name: str) -> None:
        """Delete a pod at once, as a kubelet does that has ended it."""
        self._cluster.api.delete(f"{PODS}/{name}")

    async def read(self, name: str) -> NodePod:
        """Return a pod as a drain reads it."""
        [found] = [found for found in await self.drain.node_pods(NODE) if found.key.name == name]
        return found

    async def evict(self, evicted: NodePod, *, is_dry_run: bool = False) -> EvictionState:
        return (await self.drain.evict(evicted, is_dry_run=is_dry_run)).state


def drain_cluster(
    api: ApiClient, record: Callable[[EventContent], object] = lambda _: None
) -> KubernetesDrainCluster:
    client = FencedClient(api, 1, may_write=lambda: True, seconds_left=lambda: 30.0, renewals=lambda: 1)
    return KubernetesDrainCluster(client, record=record)
