"""Sixty nodes that fail at once on a real control plane: the drains exceed no limit of pods, gangs and namespaces, at a
time or in an hour, and the nodes that are left report which one holds their pods back, and until when.

The pods of every second node are a gang that leaves whole. There is no kubelet: the test ends the pods that are evicted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.model.instant import parse_rfc3339
from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster, NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.objects import pod
from tests.daemonset.helm import grant_rights
from tests.e2e.bulk_nodes import for_each, make_nodes, wait_until_schedulable
from tests.e2e.fleet import Aggregator, deployed_fleet
from tests.e2e.scene import ENFORCED
from tests.e2e.swarm import fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.training import PodThread, drains, running_status
from tests.kubelet.audit import Audit

pytestmark = pytest.mark.slow

NODES = [f"gpu-{number:03}" for number in range(60)]
TEAMS = [f"team-{name}" for name in "abcde"]

# The GPU of each pod of a node, by name of the pod; the fault is of `GPU-1`.
WORK = {"first": "GPU-1", "second": "GPU-1", "neighbour": "GPU-2"}
STAYS = "neighbour"

# Limits at a time, and in an hour: of pods, gangs and namespaces.
AT_ONCE = {"pods": 9, "gangs": 1, "namespaces": 3}
HOURLY = {"pods": 40, "gangs": 2, "namespaces": 4}

HEALTHY = healthy_report(("gpu-lost",))
FAULTY = faulty_report(HEALTHY, fatal_finding("gpu-lost"))
LIMITS = {**AT_ONCE, **{f"{name}PerHour": limit for name, limit in HOURLY.items()}}
POLICY = f"""{ENFORCED.replace("quarantine: 1s", "quarantine: 0s").replace("new: 100, active: 100", "new: 9999, active: 9999")}
drain:
  mode: enforce
  rules: [{{check: "*", when: immediately}}]
  limits: {{nodes: 100%, newPerHour: 9999, perDomain: 9999, {", ".join(f"{key}: {limit}" for key, limit in LIMITS.items())}}}
"""


class Kubelet(PodThread):
    """Ends the pods that are evicted at its next look."""

    def _sync(self, pod: Any) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            self._cluster.api.delete(f"{self._pods}/{pod['metadata']['name']}")


def team(node: str) -> str:
    return TEAMS[NODES.index(node) % len(TEAMS)]


def is_gang(node: str) -> bool:
    return NODES.index(node) % 2 == 0


def make_pods(cluster: Cluster) -> None:
    """Create running pods on all Nodes. A ConfigMap is their controller: no new pod replaces one that ends."""
    owners = {}
    for name in TEAMS:
        cluster.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        made = cluster.api.post(f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": "owner"}})
        uid = made["metadata"]["uid"]
        owners[name] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": uid,
            "controller": True,
        }
    for name in TEAMS:
        cluster.until(partial(cluster.has, SERVICE_ACCOUNT.format(name)), "kube-controller-manager")

    async def make_group(api: ApiClient, node: str) -> None:
        path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{team(node)}/podgroups"
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
        await api.request("POST", path, body={"metadata": {"name": node}, "spec": spec})

    async def make(api: ApiClient, place: tuple[str, str]) -> None:
        node, work = place
        body = pod(f"{node}-{work}")
        body["metadata"]["ownerReferences"] = [owners[team(node)]]
        body["spec"]["nodeName"] = node
        if is_gang(node) and work != STAYS:
            body["spec"]["schedulingGroup"] = {"podGroupName": node}
        path = f"/api/v1/namespaces/{team(node)}/pods"
        await api.request("POST", path, body=body)
        status = running_status(WORK[work])
        await api.request("PATCH", f"{path}/{node}-{work}/status", body=status, content_type=MERGE_PATCH)

    for_each(cluster, [node for node in NODES if is_gang(node)], make_group)
    for_each(cluster, [(node, work) for node in NODES for work in WORK], make)


def parts(records: list[Any]) -> dict[str, int]:
    """Return how many pods, gangs and namespaces some drains have."""
    pods = [member for record in records for member in record["spec"]["pods"]]
    groups = [group for record in records for group in record["spec"].get("podGroups", [])]
    return {
        "pods": len({member["uid"] for member in pods}),
        "gangs": len({(group["namespace"], group["name"]) for group in groups}),
        "namespaces": len({member["namespace"] for member in pods}),
    }


def check_limits(cluster: Cluster) -> list[Any]:
    """Check that the recorded drains exceed no limit, and return them."""
    records = [item for item in drains(cluster) if item.get("status", {}).get("state") != "Cancelled"]
    ended = {"Succeeded", "Failed", "Unknown", "Superseded"}
    running = [item for item in records if item.get("status", {}).get("state") not in ended]
    for used, limits in ((parts(running), AT_ONCE), (parts(records), HOURLY)):
        assert all(used[name] <= limit for name, limit in limits.items()), (used, limits)
    return records


@contextmanager
def kubelets(cluster: Cluster) -> Iterator[None]:
    with ExitStack() as stack:
        for name in TEAMS:
            stack.enter_context(Kubelet(cluster, 0.5, name))
        yield


def waiting(aggregator: Aggregator) -> dict[str, tuple[str, str]]:
    """Return the limit that holds the work of each node back, and until when. A node of which the pods cannot be read
    for a while has another reason.
    """
    found = {}
    for node in NODES:
        for drain in aggregator.query(f"/v1/nodes/{node}")["drains"]:
            if drain["state"] == "waits" and drain["limited_until"]:
                found[node] = drain["reason"], drain["limited_until"]
    return found


@pytest.mark.timeout(900)
def test_sixty_faults_at_once_exceed_no_limit(new_cluster: NewCluster, tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    flags = {**GANGS, "kube-apiserver": [*GANGS["kube-apiserver"], *audit.flags()]}
    with new_cluster(flags=flags) as cluster, deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY)
        grant_rights(cluster, POLICY)
        uids = make_nodes(cluster, [*NODES, *(f"spare-{number}" for number in range(4))])
        wait_until_schedulable(cluster)
        make_pods(cluster)
        [aggregator] = fleet.add_aggregators(1)
        aggregator.start()
        fleet.distribute_ca()
        with swarm(fleet, uids, HEALTHY, aggregator) as agents, kubelets(cluster):
            agents.start()
            agents.wait_until_delivered()
            agents.set_reports(dict.fromkeys(NODES, FAULTY))
            aggregator.until(has_used_the_hour(cluster))
            records = check_limits(cluster)
            aggregator.until(lambda: len(waiting(aggregator)) == len(NODES) - len(records))
            held = waiting(aggregator)
    used = parts(records)
    print(f"{len(records)} of {len(NODES)} nodes drained, with {used}; the others wait: {reasons(held)}")
    assert used == HOURLY
    assert {item["status"]["state"] for item in records} == {"Succeeded"}
    assert reasons(held) == {"drain.limits.podsPerHour"}
    begun = min(parse_rfc3339(item["status"]["begunAt"]) for item in records)
    assert {round(parse_rfc3339(until) - begun - 3600.0) for _, until in held.values()} <= {0, 1}
    evicted = Counter(write.target for write in audit.sent("create pods/eviction") if write.code == 201)
    assert set(evicted.values()) == {1}
    assert evicted.keys() == {
        f"{member['namespace']}/{member['name']}" for record in records for member in record["spec"]["pods"]
    }


def has_used_the_hour(cluster: Cluster) -> Callable[[], bool]:
    """Return a condition that checks the limits, and holds once all drains of the hour have ended."""

    def is_over() -> bool:
        records = check_limits(cluster)
        return parts(records)["pods"] == HOURLY["pods"] and all(
            item.get("status", {}).get("state") == "Succeeded" for item in records
        )

    return is_over


def reasons(held: dict[str, tuple[str, str]]) -> set[str]:
    return {found for reason, _ in held.values() for found in re.findall(r"drain\.limits\.\w+", reason)}
