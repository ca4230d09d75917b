"""Latency from a line in the kernel log to a taint in a watch, beside a bare patch of a Node in the same run.

`python bench/marking.py [TRIALS]`. Agents, the aggregator and the control plane are real processes, and share
the processors of this machine. There are no grace periods and no limits of budgets. One line at a time, for
one of eight nodes in turn; a driver load between two lines of a node releases its mark.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.controlplane.cluster import Cluster, cluster
from tests.e2e.bulk_nodes import wait_until_schedulable
from tests.e2e.fleet import Agent, deployed_fleet
from tests.e2e.watcher import Watcher

NODES = 8
UPTIME = 1_000_000

POLICY = """
defaultMode: enforce
budget: {fleet: 100%, fatalReserve: 0%, pool: 100%, perCheck: {new: 100000, within: 10m, active: 100000}}
diagnosis: {suppression: {minNodes: 100000}}
gracePeriod: {quarantine: 0s, suspect: 0s}
soak: {initial: 1s, max: 1s, resetAfter: 1m}
"""
FAULT = "3,{},{},-;NVRM: Xid (PCI:{}): 62, pid=1234, name=train, text."
LOADED = "4,{},{},-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build"


class Node:
    """A node with its agent, and the lines of its kernel log."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.name = agent.node
        self._lines = 0
        paths = (agent.bundle / "proc/driver/nvidia/gpus").iterdir()
        self._gpus = sorted(path.name.rpartition(".")[0] or path.name for path in paths)
        self._began = 0.0

    def ready(self) -> None:
        """Wait until the agent is ready. Times of lines count from here."""
        self.agent.ready()
        self._began = time.monotonic()

    def inject_fault(self) -> None:
        """Log a fault of a GPU, another GPU each time."""
        self._log(FAULT, self._gpus[self._lines // 2 % len(self._gpus)])

    def clear_fault(self) -> None:
        """Log a driver load, which clears the fault."""
        self._log(LOADED)

    def _log(self, line: str, *fields: str) -> None:
        self._lines += 1
        after = int((UPTIME + time.monotonic() - self._began) * 1e6)
        self.agent.write_kernel_log(line.format(90_000 + self._lines, after, *fields))


class Patches:
    """Patches Nodes on one persistent connection."""

    def __init__(self, made: Cluster) -> None:
        trust = ssl.create_default_context(cafile=str(made.ca))
        host = made.url.removeprefix("https://")
        self._connection = http.client.HTTPSConnection(host, context=trust, timeout=30)
        self._headers = {
            "Authorization": f"Bearer {made.token}",
            "Content-Type": "application/merge-patch+json",
        }

    def label(self, node: str, value: str) -> None:
        """Set a label of a Node."""
        body = json.dumps({"metadata": {"labels": {"bare": value}}})
        self._connection.request("PATCH", f"/api/v1/nodes/{node}", body, self._headers)
        assert self._connection.getresponse().read()


def main() -> None:
    """Print the figures."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with cluster() as made, deployed_fleet(made) as scene:
        scene.policy.write_text(POLICY)
        nodes = [Node(scene.add_node(f"gpu-{number}")) for number in range(NODES)]
        [aggregator] = scene.add_aggregators(1)
        aggregator.start()
        scene.distribute_ca()
        aggregator.ready()
        for node in nodes:
            node.agent.start()
        for node in nodes:
            node.ready()
        wait_until_schedulable(made)
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_agents_reporting") == NODES)
        patches, took, bare = Patches(made), list[float](), list[float]()
        with Watcher(made) as watcher:
            for trial in range(trials):
                node = nodes[trial % NODES]
                aggregator.until(partial(is_free, watcher, node.name))
                took.append(marked(watcher, node))
                node.clear_fault()
                bare.append(labelled(watcher, patches, nodes[(trial + 3) % NODES].name, str(trial)))
        print(row("line to taint", took))
        print(row("reference: bare patch to watcher", bare))
        print(
            f"{trials} lines, {NODES} agents; load of the machine in the last minute {os.getloadavg()[0]:.2f}"
        )


def is_free(watcher: Watcher, name: str) -> bool:
    """Return whether a Node has no mark."""
    return name not in watcher.marked()


def marked(watcher: Watcher, node: Node) -> float:
    """Return the seconds from a line to the taint of its node."""
    before = len(watcher.states)
    began = time.monotonic()
    node.inject_fault()
    return watcher.first(lambda state: state.node == node.name and bool(state.marks), before).at - began


def labelled(watcher: Watcher, patches: Patches, node: str, value: str) -> float:
    """Return the seconds from a patch to its event in a watch."""
    before = len(watcher.states)
    began = time.monotonic()
    patches.label(node, value)
    return watcher.first(lambda state: state.labels.get("bare") == value, before).at - began


def row(name: str, values: list[float]) -> str:
    """Return a row with the median and the 99th percentile in milliseconds."""
    high = quantiles(values, n=100, method="inclusive")[98]
    return (
        f"{name:<34}p50 {median(values) * 1000:6.1f} ms   p99 {high * 1000:6.1f} ms   "
        f"at most {max(values) * 1000:6.1f} ms"
    )


if __name__ == "__main__":
    main()
