"""A cluster with real nodes, on which pods run: a control plane, and containerd and a kubelet for each node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster, cluster
from tests.controlplane.commands import SERVICE_ADDRESS
from tests.kubelet.audit import Audit
from tests.kubelet.disk import ram_disk
from tests.kubelet.network import PrivateNetwork
from tests.kubelet.node import Node
from tests.kubelet.settings import DNS_ADDRESS, NodeSettings
from tests.paths import ROOT
from tests.waiting import until

NODES = ("node-1", "node-2")

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Site:
    """A running cluster with its nodes. Use it inside `network.entered`."""

    network: PrivateNetwork
    cluster: Cluster
    nodes: Mapping[str, Node]
    audit: Audit

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as the administrator, and return its output. Fails with its error output."""
        try:
            return self.cluster.kubectl(*arguments)
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {error.stderr}") from None

    def apply(self, objects: Sequence[Object]) -> None:
        """Apply objects as `kubectl apply --server-side` does."""
        path = self.cluster.processes.directory / "applied.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))

    def until(self, condition: Callable[[], Answer]) -> Answer:
        """Wait until a condition holds. The error of a time-out has the pods, the Events and the kubelets' logs."""
        return until(condition, self.report, every=0.2)

    def report(self) -> str:
        """Return the state of the cluster for an error: the pods, the Events and the kubelets' logs."""
        parts = [
            self.kubectl("get", "pods", "-A", "-o", "wide"),
            self.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp"),
            *(node.log("kubelet") for node in self.nodes.values()),
        ]
        return "\n".join(part[-4000:] for part in parts)


@contextmanager
def running_site(pause: str, archives: Sequence[Path], names: Sequence[str] = NODES) -> Iterator[Site]:
    """Run a cluster with nodes that are ready and have some images. All of it ends with the block.

    pause: image of the pods' first container, which is in the archives, too. names: of the nodes.
    """
    addresses = [SERVICE_ADDRESS, DNS_ADDRESS, *(f"172.30.0.{number}" for number in range(1, len(names) + 1))]
    with ExitStack() as stack:
        network = stack.enter_context(PrivateNetwork(addresses))
        disks = stack.enter_context(ram_disk())
        audit = Audit(disks)
        nodes: dict[str, Node] = {}
        with network.entered():
            running = stack.enter_context(cluster(flags={"kube-apiserver": audit.flags()}, nodes=names))
            for number, name in enumerate(names, 1):
                cgroup = f"/{running.processes.directory.name}-{name}"
                settings = NodeSettings(name, number, pause, disks / name, cgroup)
                nodes[name] = Node(running, settings)
            dns = [sys.executable, "-m", "tests.kubelet.dns", str(running.kubeconfig), DNS_ADDRESS]
            running.processes.start("dns", "env", "-C", str(ROOT), *dns)
            for node in nodes.values():
                node.start()
                for archive in archives:
                    node.import_image(archive)
                node.start_kubelet()
            site = Site(network, running, nodes, audit)
            for node in nodes.values():
                site.until(partial(is_ready, site, node))
        yield site


def is_ready(site: Site, node: Node) -> bool:
    """Return whether the kubelet reports a Node as ready, in its current boot."""
    if not site.cluster.has(node.path):
        return False
    status = site.cluster.api.get(node.path)["status"]
    current = status["nodeInfo"]["bootID"] == (node.directory / "boot_id").read_text().strip()
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
    return current and conditions.get("Ready") == "True"
