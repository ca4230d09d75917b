"""A running fleet with one aggregator, faults of its nodes, and the objects of the cluster that show their effect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from nodeguard.model.node import PREFIX
from tests.controlplane.cluster import Cluster
from tests.daemonset.helm import grant_rights
from tests.e2e.fleet import Agent, Fleet, deployed_fleet

# Marks are set at once and released soon, without limits; test_budget covers budgets and suppression.
ENFORCED = """
defaultMode: enforce
gracePeriod: {quarantine: 1s, suspect: 1s, sharedHardware: 1s}
soak: {initial: 1s, max: 1s, resetAfter: 1m}
budget: {fleet: 100%, pool: 100%, domain: 100%, suspect: 100%, perCheck: {new: 100, active: 100}}
diagnosis: {suppression: {minNodes: 10000}}
"""
INCIDENTS = "/apis/nodeguard.dev/v1alpha1/nodeincidents"

# Begins the types of nodeguard's own conditions, and the reasons of others that it sets.
_OWN = "Nodeguard"

# The GPUs of the bundle in the driver's order, and lines of the kernel log.
GPUS = tuple(f"0000:{bus}:00" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
_XID = "NVRM: Xid (PCI:{}): 119, pid=1234, name=train, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
_SXID = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"
_LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"

_numbers = itertools.count(1)


@contextmanager
def running_fleet(
    cluster: Cluster,
    policy: str,
    *names: str,
    gpus: int = 8,
    bundles: Mapping[str, str] = MappingProxyType({}),
    options: Sequence[str] = (),
) -> Iterator[Fleet]:
    """Run a fleet of healthy nodes, and one aggregator that has their reports and is active.

    gpus: number of GPUs that a device plugin would publish. bundles: recordings of nodes with another machine.
    options: additional ones of the aggregator.
    """
    with deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(policy)
        grant_rights(cluster, policy)
        for name in names:
            fleet.add_node(name, bundles.get(name, "healthy-dgx-h100"), gpus=gpus)
        [aggregator] = fleet.add_aggregators(1)
        aggregator.options = options
        aggregator.start()
        fleet.distribute_ca()
        for agent in fleet.agents.values():
            agent.start()
        for agent in fleet.agents.values():
            # Too many stale nodes would freeze all marks.
            agent.ready()
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
        aggregator.until(lambda: not any(taints(cluster, name) for name in names))
        yield fleet


def inject_gpu_fault(agent: Agent, gpu: str = GPUS[0]) -> None:
    """Write a fatal fault of a GPU to the kernel log."""
    _log(agent, 3, _XID.format(gpu))


def inject_switch_fault(agent: Agent) -> None:
    """Write a fatal fault of an NVSwitch, which all GPUs of the node use, to the kernel log."""
    _log(agent, 3, _SXID)


def log_driver_load(agent: Agent) -> None:
    """Write to the kernel log that the driver was loaded, which clears such a fault."""
    _log(agent, 5, _LOADED)


def get_node(cluster: Cluster, name: str) -> Any:
    return cluster.api.get(f"/api/v1/nodes/{name}")


def taints(cluster: Cluster, name: str) -> list[Any]:
    items: list[Any] = get_node(cluster, name)["spec"].get("taints", [])
    return items


def is_marked(cluster: Cluster, name: str) -> bool:
    return any(taint["key"] == "nodeguard.dev/quarantine" for taint in taints(cluster, name))


def is_unmarked(cluster: Cluster, name: str) -> bool:
    return not is_marked(cluster, name)


def condition(cluster: Cluster, name: str) -> Any:
    """Return the condition NodeguardHealthy of a Node; None if it has none."""
    conditions = get_node(cluster, name)["status"]["conditions"]
    return next((item for item in conditions if item["type"] == "NodeguardHealthy"), None)


def nodeguard_fields(cluster: Cluster, name: str) -> list[Any]:
    """Return all annotations, labels, taints and conditions of nodeguard on a Node, also those of a drain."""
    found = get_node(cluster, name)
    metadata = found["metadata"]
    keys = [*metadata.get("annotations", {}), *metadata.get("labels", {})]
    marks = [taint for taint in found["spec"].get("taints", []) if taint["key"].startswith(PREFIX)]
    conditions = [
        item
        for item in found["status"]["conditions"]
        if item["type"].startswith(_OWN) or item.get("reason", "").startswith(_OWN)
    ]
    return [*(key for key in keys if key.startswith(PREFIX)), *marks, *conditions]


def incidents(cluster: Cluster, name: str) -> list[Any]:
    """Return the incidents of a Node."""
    items = cluster.api.get(INCIDENTS)["items"]
    return [item for item in items if item.get("status", {}).get("node") == name]


def incident_state(cluster: Cluster, name: str) -> str:
    """Return the state of the only incident of a Node; empty if it has none."""
    items = incidents(cluster, name)
    assert len(items) < 2
    state: str = items[0]["status"]["state"] if items else ""
    return state


def has_incident_state(cluster: Cluster, name: str, state: str) -> bool:
    """Return whether the only incident of a Node is in a state."""
    return incident_state(cluster, name) == state


def events(cluster: Cluster, name: str, reason: str) -> list[str]:
    """Return the messages of a Node's Events of one reason."""
    uid = get_node(cluster, name)["metadata"]["uid"]
    events = cluster.api.get(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid={uid}")
    return [event["message"] for event in events["items"] if event["reason"] == reason]


def _log(agent: Agent, priority: int, line: str) -> None:
    number = next(_numbers)
    agent.write_kernel_log(f"{priority},{90_000 + number},{1_000_000_000_000 + 1000 * number},-;{line}")
