"""Leaders that are killed at drawn instants of drains.

Two nodes fail, soon after their mark the leader is killed, and the other aggregator goes on; then the next two fail,
also while the earlier drains run. A process that is dead has no more use for its lease, so the lease is emptied: the
other one begins within a second, and may meet requests that the dead one has sent. The API server records all
evictions. There is no kubelet: a thread ends the pods that are evicted, some seconds later.

Some kills have the same Nodes, and the next ones have others in their place: after a kill all agents connect again, and
the lists of pods are read several times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.model.node import PREFIX
from tests.controlplane.cluster import Cluster, NewCluster
from tests.controlplane.objects import pod
from tests.daemonset.helm import grant_rights
from tests.daemonset.manifests import NAMESPACE
from tests.e2e.bulk_nodes import for_each, make_nodes, wait_until_schedulable
from tests.e2e.drain_kill_records import FAULTS, WORK, DrainKills, Kill
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.scene import ENFORCED
from tests.e2e.swarm import fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.training import PODS, TEAM, PodThread, create_namespace, drains, running_status
from tests.kubelet.audit import Audit

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/nodeguard-aggregator"

# Seconds from the first mark of a fault to the kill, and from the eviction of a pod to its end, at most. The first
# eviction is a third of a second after the mark, or later on a busy machine.
SPAN, GRACE = 1.0, 2.0

# Kills with the same Nodes, and further Nodes without a fault.
TOGETHER, SPARE = 10, 4

HEALTHY = healthy_report(("gpu-lost",))
FAULTY = faulty_report(HEALTHY, fatal_finding("gpu-lost"))
POLICY = f"""{ENFORCED.replace("quarantine: 1s", "quarantine: 0s").replace("new: 100, active: 100", "new: 9999, active: 9999")}
drain:
  mode: enforce
  rules: [{{check: "*", when: immediately}}]
  limits: {{nodes: 100%, newPerHour: 9999, perDomain: 9999, podsPerHour: 9999}}
"""


class Kubelet(PodThread):
    """Ends the pods that are evicted, each after a drawn time. ends: when, in seconds of the monotonic clock, by name."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, 0.2)
        self._random = random
        self.ends: dict[str, float] = {}

    def _sync(self, pod: Any) -> None:
        name = pod["metadata"]["name"]
        if not pod["metadata"].get("deletionTimestamp"):
            return
        end = self.ends.setdefault(name, time.monotonic() + self._random.uniform(0.0, GRACE))
        if time.monotonic() >= end:
            self._cluster.api.delete(f"{self._pods}/{name}")


def make_owner(cluster: Cluster) -> Mapping[str, object]:
    """Create the controller of all pods, and return its reference. It is a ConfigMap: no new pod replaces one that
    ends.
    """
    create_namespace(cluster)
    made = cluster.api.post(f"/api/v1/namespaces/{TEAM}/configmaps", {"metadata": {"name": "owner"}})
    uid = made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": True}


def make_pods(cluster: Cluster, nodes: list[str], owner: Mapping[str, object]) -> None:
    """Create running pods on Nodes. owner: their controller."""

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


def drawn_delays(kills: int, random: Random) -> list[float]:
    """Return the seconds from each mark to its kill: one in each part of the time, so that a few kills also meet all
    phases of a drain.
    """
    return [SPAN * (part + random.random()) / kills for part in random.sample(range(kills), kills)]


def kill_leaders(
    new_cluster: NewCluster,
    directory: Path,
    kills: int,
    random: Random,
    *,
    progress: Callable[[int, int], bool] = lambda *_: True,
) -> DrainKills:
    """Kill leaders in a new cluster. directory: for the log of the API server. progress: is called before each kill with
    the number of kills, and of pods that were evicted; returns whether there are more.
    """
    audit = Audit(directory)
    with new_cluster(flags={"kube-apiserver": audit.flags()}) as cluster, deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY)
        grant_rights(cluster, POLICY)
        for aggregator in fleet.add_aggregators():
            aggregator.start()
        fleet.distribute_ca()
        done, left = list[Kill](), set[str]()
        with Kubelet(cluster, random) as kubelet:
            run = _Run(fleet, make_owner(cluster), lambda: progress(len(done), len(kubelet.ends)))
            delays = drawn_delays(kills, random)
            for first in range(0, kills, TOGETHER):
                for kill in run.kill(delays[first : first + TOGETHER]):
                    done.append(kill)
                left |= run.clear()
        records = drains(cluster)
    return DrainKills(
        run.nodes,
        kills=done,
        evictions=audit.sent("create pods/eviction"),
        leases=audit.sent("patch leases"),
        statuses=audit.sent("update nodeactions/status"),
        records=records,
        left=left,
    )


def has_mark(cluster: Cluster, nodes: list[str]) -> bool:
    """Return whether one of some Nodes has a taint of nodeguard."""
    return any(
        taint["key"].startswith(PREFIX)
        for node in nodes
        for taint in cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", ())
    )


class _Run:
    """Kills of the leaders of one fleet. nodes: those that have failed. goes_on: returns whether there is a next kill."""

    def __init__(self, fleet: Fleet, owner: Mapping[str, object], goes_on: Callable[[], bool]) -> None:
        self.nodes: list[str] = []
        self._fleet = fleet
        self._owner = owner
        self._goes_on = goes_on

    def kill(self, delays: list[float]) -> Iterator[Kill]:
        """Let two new Nodes after the other fail, kill the leader each time, and wait for the ends of all drains. Yield
        each kill. delays: seconds from the mark to the kill.
        """
        fleet, cluster = self._fleet, self._fleet.cluster
        first = len(self.nodes)
        nodes = [f"gpu-{first + number:03}" for number in range(FAULTS * len(delays))]
        spare = [f"spare-{first + number:03}" for number in range(SPARE)]
        uids = make_nodes(cluster, [*nodes, *spare])
        wait_until_schedulable(cluster)
        make_pods(cluster, nodes, self._owner)
        with swarm(fleet, uids, HEALTHY, *fleet.aggregators) as agents:
            agents.start()
            agents.wait_until_delivered()
            leader = wait_for_leader(fleet.aggregators)
            reports = dict.fromkeys(nodes, HEALTHY)
            for number, delay in enumerate(delays):
                if not self._goes_on():
                    break
                began, faulty = time.time(), nodes[FAULTS * number : FAULTS * (number + 1)]
                self.nodes += faulty
                reports |= dict.fromkeys(faulty, FAULTY)
                # All send a report, so that they notice now, and not at a heartbeat, which connections the last kill
                # has ended.
                agents.set_reports(reports)
                leader.until(partial(has_mark, cluster, faulty))
                marked = time.time()
                time.sleep(delay)
                killed, at = leader, time.time()
                killed.kill()
                cluster.api.patch(LEASE, {"spec": {"holderIdentity": ""}})
                leader = wait_for_leader([item for item in fleet.aggregators if item is not killed])
                yield Kill(at, killed.pod, leader.pod, list(self.nodes), began, marked, time.time())
                killed.start()
            fleet.aggregators[0].until(lambda: is_finished(cluster, self.nodes))

    def clear(self) -> set[str]:
        """Delete all Nodes with their pods, and return these, by namespace and name."""
        api = self._fleet.cluster.api
        left = {f"{TEAM}/{item['metadata']['name']}" for item in api.get(PODS)["items"]}
        api.delete(PODS)
        api.delete("/api/v1/nodes")
        return left


def is_finished(cluster: Cluster, nodes: list[str]) -> bool:
    """Return whether each node has a drain that has ended."""
    ended = {"Succeeded", "Failed"}
    return {
        item["spec"]["node"] for item in drains(cluster) if item.get("status", {}).get("state") in ended
    } == set(nodes)
