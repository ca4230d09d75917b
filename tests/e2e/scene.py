"""A fleet at work, what happens to its nodes, and what is to be seen of that in the cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nodeguard.model.node import PREFIX
from tests.controlplane.cluster import Cluster
from tests.e2e.fleet import Agent, Fleet, fleet

# Everything is marked at once, no check is doubted, and all is given back soon: what a budget leaves is tried
# elsewhere.
ENFORCED = """
defaultMode: enforce
gracePeriod: {quarantine: 1s, suspect: 1s, sharedHardware: 1s}
soak: {initial: 1s, max: 1s, resetAfter: 1m}
budget: {fleet: 100%, pool: 100%, domain: 100%, suspect: 100%, perCheck: {new: 100, active: 100}}
diagnosis: {suppression: {minNodes: 10000}}
"""
INCIDENTS = "/apis/nodeguard.dev/v1alpha1/nodeincidents"

# The GPUs of the bundle, as the driver counts them, and what the kernel log says of one.
GPUS = tuple(f"0000:{bus}:00" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
_XID = "NVRM: Xid (PCI:{}): 119, pid=1234, name=train, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
_LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"

_numbers = itertools.count(1)


@contextmanager
def at_work(cluster: Cluster, policy: str, *names: str, gpus: int = 8) -> Iterator[Fleet]:
    """A fleet of these nodes, all of them healthy, and one aggregator that has heard them and acts.

    gpus: as many as a device plugin would tell of.
    """
    with fleet(cluster) as made:
        made.policy.write_text(policy)
        for name in names:
            made.join(name, gpus=gpus)
        [aggregator] = made.aggregate(1)
        aggregator.start()
        made.trust()
        for agent in made.agents.values():
            agent.start()
        for agent in made.agents.values():
            # One that did not come up would be silent, and too many that are freeze every mark.
            agent.ready()
        aggregator.until(lambda: "nodeguard_aggregator_active 1" in aggregator.page("/metrics"))
        aggregator.until(lambda: not any(taints(cluster, name) for name in names))
        yield made


def fails(agent: Agent, gpu: str = GPUS[0]) -> None:
    """The kernel log tells of a fatal fault of a GPU."""
    _says(agent, 3, _XID.format(gpu))


def driver_is_loaded(agent: Agent) -> None:
    """The kernel log tells that the driver was loaded anew, which ends such a fault."""
    _says(agent, 5, _LOADED)


def node(cluster: Cluster, name: str) -> Any:
    return cluster.api.get(f"/api/v1/nodes/{name}")


def taints(cluster: Cluster, name: str) -> list[Any]:
    found: list[Any] = node(cluster, name)["spec"].get("taints", [])
    return found


def is_marked(cluster: Cluster, name: str) -> bool:
    return any(one["key"] == "nodeguard.dev/quarantine" for one in taints(cluster, name))


def is_unmarked(cluster: Cluster, name: str) -> bool:
    return not is_marked(cluster, name)


def condition(cluster: Cluster, name: str) -> Any:
    """The condition that is nodeguard's; None where there is none."""
    found = [one for one in node(cluster, name)["status"]["conditions"] if one["type"] == "NodeguardHealthy"]
    return found[0] if found else None


def ours(cluster: Cluster, name: str) -> list[Any]:
    """All that is nodeguard's on a Node."""
    found = node(cluster, name)
    words = [key for key in found["metadata"].get("annotations", {}) if key.startswith(PREFIX)]
    marks = [one for one in taints(cluster, name) if one["key"].startswith(PREFIX)]
    return [*words, *marks, *filter(None, [condition(cluster, name)])]


def incidents(cluster: Cluster, name: str) -> list[Any]:
    """The incidents of a Node."""
    found = cluster.api.get(INCIDENTS)["items"]
    return [one for one in found if one.get("status", {}).get("node") == name]


def state(cluster: Cluster, name: str) -> str:
    """The state of the one incident of a Node; empty where there is none."""
    found = incidents(cluster, name)
    assert len(found) < 2
    said: str = found[0]["status"]["state"] if found else ""
    return said


def is_in(cluster: Cluster, name: str, said: str) -> bool:
    """Whether the one incident of a Node is in a state."""
    return state(cluster, name) == said


def events(cluster: Cluster, name: str, reason: str) -> list[str]:
    """What Events of one reason say of a Node."""
    uid = node(cluster, name)["metadata"]["uid"]
    found = cluster.api.get(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid={uid}")
    return [one["message"] for one in found["items"] if one["reason"] == reason]


def _says(agent: Agent, priority: int, line: str) -> None:
    number = next(_numbers)
    agent.kernel_says(f"{priority},{90_000 + number},{1_000_000_000_000 + 1000 * number},-;{line}")
