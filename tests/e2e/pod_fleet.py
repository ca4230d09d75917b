"""nodeguard as pods on real nodes: a release of the chart, with another policy, and faults that a probe reports."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from nodeguard.aggregator.api.requests import SOCKET_PATH
from tests.controlplane.api import Object
from tests.controlplane.objects import GPU
from tests.daemonset.helm import CHART, RELEASE, Helm
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, pods
from tests.e2e.processes import query_socket
from tests.e2e.scene import ENFORCED, taints
from tests.kubelet.node import Node
from tests.kubelet.site import Site

_WORKLOADS = f"/apis/apps/v1/namespaces/{NAMESPACE}"

# A check of the site: its probe quarantines a node.
CHECK = """
family: site
checks:
  - id: burn-in-failed
    title: Burn-in failed
    target: probe
    health: fatal
    action: replace-component
    when:
      all:
        - {signal: probe.name, is: burn-in, evidence: false}
        - {signal: probe.health, is: fatal}
    message: "{probe.message}"
    remedy: Have the GPU replaced.
    description: Our burn-in compares with a reference.
    source: Our runbook.
    symptom_of: [probe-fatal]
"""

# The registry in the names of the images that the nodes import.
IMAGES = {"registry": "docker.io/library"}

# Values of the chart: a policy that enforces, and the same with the check of the site.
VALUES = {"image": IMAGES, "policy": yaml.safe_load(ENFORCED)}
CHECKED = {**VALUES, "siteChecks": {"site.yaml": CHECK}}

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class PodFleet:
    """nodeguard on the nodes of a site."""

    site: Site

    def install(self, values: Mapping[str, Any], chart: Path = CHART) -> None:
        """Install the chart. An earlier test that failed may have left a release."""
        self.uninstall_leftover()
        self.helm("install", RELEASE, str(chart), "--create-namespace", values=values)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Upgrade the release to the current chart."""
        self.helm("upgrade", RELEASE, str(CHART), values=values)

    def rollback(self, revision: int) -> None:
        """Return to a revision of the release; the first is 1."""
        self.helm("rollback", RELEASE, str(revision))

    def uninstall(self) -> None:
        """Uninstall the release, and wait until its pods have ended."""
        self.helm("uninstall", RELEASE)
        self.until(lambda: not self.site.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])

    def uninstall_leftover(self) -> None:
        """Uninstall a release that is left from an earlier test."""
        if self.helm("list", "--short"):
            self.uninstall_earlier()

    def uninstall_earlier(self) -> None:
        """Uninstall a release of the earlier chart, which leaves the lease: the next aggregators would wait for it."""
        self.uninstall()
        self.site.kubectl("delete", "lease", "-n", NAMESPACE, AGGREGATOR, "--ignore-not-found")

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm, and return its output. Fails with its error output."""
        directory = self.site.cluster.processes.directory / "helm"
        directory.mkdir(exist_ok=True)
        try:
            return Helm(directory, self.site.cluster)(*arguments, values=values)
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"helm {' '.join(arguments)}: {error.stdout}{error.stderr}") from None

    def has_check(self) -> bool:
        """Return whether there is a check of the site."""
        return self.site.cluster.has(f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeguard-checks")

    def until(self, condition: Callable[[], Answer]) -> Answer:
        return self.site.until(condition)

    def is_rolled_out(self) -> bool:
        """Return whether all pods have the current version, and are ready, and those of other versions have ended.

        A leader that is being deleted is active until it ends.
        """
        return self.ready(AGENT) == self.ready(AGGREGATOR) == len(self.site.nodes)

    def settle(self) -> None:
        """Wait until all pods are ready, each agent reports to the leader, and nothing is marked."""
        self.until(self.is_rolled_out)
        self.until(self.is_settled)
        self.until(lambda: not any(taints(self.site.cluster, name) for name in self.site.nodes))

    def ready(self, workload: str) -> int:
        """Return how many pods of the current version are ready, 0 while others are left."""
        kind = "daemonsets" if workload == AGENT else "deployments"
        made = self.site.cluster.api.get(f"{_WORKLOADS}/{kind}/{workload}")
        status = made["status"]
        if status.get("observedGeneration") != made["metadata"]["generation"]:
            return 0
        current = status.get("updatedNumberScheduled", status.get("updatedReplicas", 0))
        total = status.get("currentNumberScheduled", status.get("replicas", 0))
        ready: int = status.get("numberReady", status.get("readyReplicas", 0))
        return ready if current == total == len(pods(self.site.cluster, workload)) else 0

    def living(self, workload: str) -> list[Object]:
        """Return the pods of a workload that are not being deleted."""
        found = pods(self.site.cluster, workload)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def count_ready(self, workload: str) -> int:
        """Return how many pods of any version are ready, and not being deleted."""
        statuses = [pod["status"].get("containerStatuses", []) for pod in self.living(workload)]
        return sum(all(container["ready"] for container in status) for status in statuses if status)

    def agent(self, node: str) -> Object:
        """Return the agent's pod of a node."""
        (pod,) = [pod for pod in self.living(AGENT) if pod["spec"].get("nodeName") == node]
        return pod

    def in_pod(self, pod: Object | str, *command: str) -> str:
        """Run a command in a pod, and return its output."""
        name = pod if isinstance(pod, str) else pod["metadata"]["name"]
        return self.site.kubectl("exec", "-n", NAMESPACE, name, "--", *command)

    def leader(self) -> str:
        """Return the pod that holds the lease; empty for none."""
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{AGGREGATOR}"
        spec = (self.site.cluster.found(lease) or {"spec": {}})["spec"]
        holder: str = spec.get("holderIdentity") or ""
        return holder.partition("_")[0]  # each start of a replica has its own suffix

    def is_settled(self) -> bool:
        """Return whether the leader is active and has current reports of all nodes, which are healthy."""
        return self.is_active() and self.reporting(health="ok") == set(self.site.nodes)

    def is_active(self) -> bool:
        """Return whether the leader sets and releases marks; not while the leader changes."""
        return bool(self._query("/v1/status").get("replica", {}).get("is_active"))

    def reporting(self, health: str = "") -> set[str]:
        """Return the nodes of which the leader has a current report; none while the leader changes.

        health: only those with this health; empty: any.
        """
        nodes = self._query("/v1/nodes").get("nodes", [])
        return {node["node"] for node in nodes if not node["stale"] and health in {"", node["health"]}}

    def _query(self, path: str) -> Any:
        """Return the JSON response of the leader's local API, empty while the leader changes.

        A command in its pod starts processes of kubectl, runc and Python, beside the pods for which the tests wait.
        """
        pod = self.site.cluster.found(f"/api/v1/namespaces/{NAMESPACE}/pods/{self.leader() or 'none'}")
        if pod is None:
            return {}
        volume = f"var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/run"
        try:
            directory = os.open(self.site.nodes[pod["spec"]["nodeName"]].root() / volume, os.O_PATH)
        except OSError:  # the pod has ended
            return {}
        try:
            # The path of a socket may have 107 bytes.
            return query_socket(Path(f"/proc/self/fd/{directory}") / Path(SOCKET_PATH).name, path)
        finally:
            os.close(directory)

    def metrics(self, pod: Object) -> str:
        """Return the metrics of an agent, through the API server."""
        name = pod["metadata"]["name"]
        return self.site.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:9434/proxy/metrics"
        )

    def report_burn_in(self, node: Node, health: Literal["ok", "fatal"]) -> None:
        """Write the file of a probe on the node."""
        directory = node.directory / "run/nodeguard/observations.d"
        directory.mkdir(parents=True, exist_ok=True)
        observation = {"name": "burn-in", "health": health, "message": f"results are {health}"}
        written_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        document = {"written_at": written_at, "valid_for": 3600, "observations": [observation]}
        (directory / ".burn-in").write_text(json.dumps(document))
        (directory / ".burn-in").rename(directory / "burn-in.json")

    def publish_gpus(self, node: Node, count: int) -> None:
        """Give a Node GPUs, as a device plugin does."""
        self._patch_gpus(node, str(count))

    def remove_gpus(self, node: Node) -> None:
        """Remove the GPUs that `publish_gpus` gave a Node."""
        self._patch_gpus(node, None)

    def _patch_gpus(self, node: Node, count: str | None) -> None:
        status = {"status": {"capacity": {GPU: count}, "allocatable": {GPU: count}}}
        self.site.cluster.api.patch(f"{node.path}/status", status, kind="strategic-merge")


def container_status(pod: Object) -> Any:
    """Return the status of a pod's only container."""
    (status,) = pod["status"]["containerStatuses"]
    return status
