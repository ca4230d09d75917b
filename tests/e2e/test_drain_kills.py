"""Leaders that are killed at drawn instants of drains: each pod is evicted once, none outside of a recorded set, and
each drain is whole in the end.

Two nodes fail, soon after that the leader is killed, and the other aggregator goes on; then the next two fail, also
while the earlier drains run. A process that is dead has no more use for its lease, so the test empties it: the other
one begins within a second, and may meet requests that the dead one has sent. The API server records all evictions.
There is no kubelet: the test ends the pods that are evicted, some seconds later.

`NODEGUARD_DRAIN_KILLS=200` sets the number of kills.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from tests.controlplane.cluster import Cluster, NewCluster
from tests.controlplane.objects import pod
from tests.daemonset.helm import grant_rights
from tests.daemonset.manifests import NAMESPACE
from tests.e2e.bulk_nodes import for_each, make_nodes, wait_until_schedulable
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.scene import ENFORCED
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.training import PODS, TEAM, PodThread, create_namespace, drains, running_status
from tests.kubelet.audit import Audit

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("NODEGUARD_DRAIN_KILLS", "15"))
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/nodeguard-aggregator"

# Nodes that fail together.
FAULTS = 2

# Seconds from the faults to the kill, and from the eviction of a pod to its end, at most. The first eviction is half a
# second after the fault.
SPAN, GRACE = 1.0, 2.0

# The GPU of each pod of a node, by name of the pod; the fault is of `GPU-1`.
WORK = {"first": "GPU-1", "second": "GPU-1", "third": "GPU-1", "neighbour": "GPU-2"}
STAYS = "neighbour"

HEALTHY = healthy_report(("gpu-lost",))
FAULTY = faulty_report(HEALTHY, fatal_finding("gpu-lost"))
POLICY = f"""{ENFORCED.replace("quarantine: 1s", "quarantine: 0s").replace("new: 100, active: 100", "new: 9999, active: 9999")}
drain:
  mode: enforce
  rules: [{{check: "*", when: immediately}}]
  limits: {{nodes: 100%, newPerHour: 9999, perDomain: 9999}}
"""


class Kubelet(PodThread):
    """Ends the pods that are evicted, each after a drawn time."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, 0.2)
        self._random = random
        self._ends: dict[str, float] = {}

    def _sync(self, pod: Any) -> None:
        name = pod["metadata"]["name"]
        if not pod["metadata"].get("deletionTimestamp"):
            return
        end = self._ends.setdefault(name, time.monotonic() + self._random.uniform(0.0, GRACE))
        if time.monotonic() >= end:
            self._cluster.api.delete(f"{self._pods}/{name}")


def terminating(cluster: Cluster) -> list[str]:
    items = cluster.api.get(PODS)["items"]
    return [item["metadata"]["name"] for item in items if item["metadata"].get("deletionTimestamp")]


def make_pods(cluster: Cluster, nodes: list[str]) -> None:
    """Create running pods on Nodes. A ConfigMap is their controller: no new pod replaces one that ends."""
    create_namespace(cluster)
    made = cluster.api.post(f"/api/v1/namespaces/{TEAM}/configmaps", {"metadata": {"name": "owner"}})
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }

    async def make(api: ApiClient, place: tuple[str, str]) -> None:
        node, work = place
        body = pod(f"{node}-{work}")
        body["metadata"]["ownerReferences"] = [owner]
        body["spec"]["nodeName"] = node
        await api.request("POST", PODS, body=body)
        status = running_status(WORK[work])
        path = f"{PODS}/{node}-{work}/status"
        await api.request("PATCH", path, body=status, content_type=MERGE_PATCH)

    for_each(cluster, [(node, work) for node in nodes for work in WORK], make)


def wait_for_leader(aggregators: list[Aggregator]) -> Aggregator:
    """Wait until an aggregator leads, and return it."""

    def leaders() -> list[Aggregator]:
        return [item for item in aggregators if item.metric("nodeguard_aggregator_active") == 1]

    return aggregators[0].until(leaders)[0]


def phase(cluster: Cluster, nodes: list[str]) -> str:
    """Return how far the drains of nodes that fail are: the phase of the one that is furthest."""
    states = [item.get("status", {}) for item in drains(cluster) if item["spec"]["node"] in nodes]
    evicted = Counter(name.rpartition("-")[0] for name in terminating(cluster))
    if any(status.get("state") == "Succeeded" for status in states):
        return "ended"
    if most := max(evicted[node] for node in nodes):
        return f"{most} of {len(WORK) - 1} pods evicted"
    if any(status.get("begunAt") for status in states):
        return "begun"
    return "recorded" if states else "none recorded"


def run(fleet: Fleet, agents: Swarm, nodes: list[str], random: Random) -> Counter[str]:
    """Let two nodes after the other fail, and kill the leader each time. Returns the kills by phase of the drains."""
    phases = Counter[str]()
    leader = wait_for_leader(fleet.aggregators)
    reports = dict.fromkeys(nodes, HEALTHY)
    for first in range(0, len(nodes), FAULTS):
        faulty = nodes[first : first + FAULTS]
        reports |= dict.fromkeys(faulty, FAULTY)
        # All send a report, so that they notice now, and not at a heartbeat, which connections the last kill has ended.
        agents.set_reports(reports)
        time.sleep(random.uniform(0.0, SPAN))
        phases[phase(fleet.cluster, faulty)] += 1
        killed = leader
        killed.kill()
        fleet.cluster.api.patch(LEASE, {"spec": {"holderIdentity": ""}})
        leader = wait_for_leader([item for item in fleet.aggregators if item is not killed])
        killed.start()
    return phases


@pytest.mark.timeout(1200 + 10 * KILLS)
def test_leaders_killed_at_any_time_evict_each_pod_once(new_cluster: NewCluster, tmp_path: Path) -> None:
    audit, random = Audit(tmp_path), Random(KILLS)
    with new_cluster(flags={"kube-apiserver": audit.flags()}) as cluster, deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY)
        grant_rights(cluster, POLICY)
        nodes = [f"gpu-{number:03}" for number in range(FAULTS * KILLS)]
        uids = make_nodes(cluster, [*nodes, *(f"spare-{number}" for number in range(4))])
        wait_until_schedulable(cluster)
        make_pods(cluster, nodes)
        for aggregator in fleet.add_aggregators():
            aggregator.start()
        fleet.distribute_ca()
        with swarm(fleet, uids, HEALTHY, *fleet.aggregators) as agents, Kubelet(cluster, random):
            agents.start()
            agents.wait_until_delivered()
            phases = run(fleet, agents, nodes, random)
            fleet.aggregators[0].until(lambda: is_finished(cluster, nodes))
        records = drains(cluster)
        left = {item["metadata"]["name"] for item in cluster.api.get(PODS)["items"]}
    print(f"{KILLS} kills, of them in these phases of drains: {dict(phases.most_common())}")
    expected = {f"{node}-{work}" for node in nodes for work in WORK.keys() - {STAYS}}
    evicted = audit.evictions()
    assert set(evicted.values()) == {1}
    # With a client that is killed, the answer can be a time-out though the eviction was stored.
    missing = {f"{TEAM}/{name}" for name in expected} - evicted.keys()
    assert missing <= audit.evictions(code=504).keys()
    assert evicted.keys() <= {f"{TEAM}/{name}" for name in expected}
    assert left == {f"{node}-{STAYS}" for node in nodes}
    assert sorted(item["spec"]["node"] for item in records) == nodes
    assert {item["status"]["state"] for item in records} == {"Succeeded"}
    for item in records:
        assert {member["name"] for member in item["spec"]["pods"]} <= expected
    assert set(phases) - {"none recorded", "ended"}, "no kill was in a drain"


def is_finished(cluster: Cluster, nodes: list[str]) -> bool:
    """Return whether each node has a drain that has ended."""
    ended = {"Succeeded", "Failed"}
    return {
        item["spec"]["node"] for item in drains(cluster) if item.get("status", {}).get("state") in ended
    } == set(nodes)
