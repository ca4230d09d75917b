"""Leaders that are killed at drawn instants of drains.

Two nodes fail, the leader is killed soon after a drawn step of their drains, and another aggregator goes on; then the
next two fail, also while the earlier drains run. A process that is dead has no more use for its lease, so the lease is
emptied: the next one begins within a second, and may meet requests that the dead one has sent. The API server records
all evictions. There is no kubelet: a thread ends the pods that are evicted, some seconds later.

A process takes a second or two of a processor to start. There are three, so that the next leader is not the one that
starts. Some kills have the same Nodes, and the next ones have others in their place: after a kill all agents connect
again, and the lists of pods are read several times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.model.node import PREFIX
from tests.controlplane.cluster import Cluster, NewCluster
from tests.controlplane.objects import pod
from tests.daemonset.helm import grant_rights
from tests.daemonset.manifests import AGGREGATOR, NAMESPACE
from tests.e2e.bulk_nodes import for_each, make_nodes, wait_until_schedulable
from tests.e2e.drain_kill_records import FAULTS, STAYS, WORK, DrainKills, Kill
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.scene import ENFORCED
from tests.e2e.swarm import fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.training import ACTIONS, PODS, TEAM, PodThread, create_namespace, drains, running_status
from tests.kubelet.audit import Audit
from tests.waiting import until

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{AGGREGATOR}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/nodeguard-aggregator"

REPLICAS = 3

# Seconds from a step of a drain to the kill, and from the eviction of a pod to its end, at most.
SPAN, GRACE = 0.3, 2.0

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


class Step(Enum):
    """A step of a drain, after which a leader is killed."""

    MARKED = "the Node has its mark"
    RECORDED = "the drain is recorded"
    BEGUN = "its begin is recorded"
    EVICTED = "a pod is evicted"


class Kubelet(PodThread):
    """Ends the pods that are evicted, each after a drawn time."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, 0.2)
        self._random = random
        # When each pod ends, in seconds of the monotonic clock, by name.
        self._ends: dict[str, float] = {}

    @property
    def evicted(self) -> int:
        """The number of pods that were evicted. Those that stayed are deleted with their Nodes."""
        return sum(not name.endswith(STAYS) for name in self._ends)

    def _sync(self, pod: Any) -> None:
        name = pod["metadata"]["name"]
        if not pod["metadata"].get("deletionTimestamp"):
            return
        end = self._ends.setdefault(name, time.monotonic() + self._random.uniform(0.0, GRACE))
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


class Instant(NamedTuple):
    """When a leader is killed. seconds: after the step."""

    step: Step
    seconds: float


def drawn_instants(kills: int, random: Random) -> list[Instant]:
    """Return the instants of some kills: as many after each step, so that a few kills also meet all of them."""
    instants = [Instant([*Step][number % len(Step)], random.uniform(0.0, SPAN)) for number in range(kills)]
    return random.sample(instants, kills)


def has_happened(step: Step, cluster: Cluster, nodes: list[str]) -> bool:
    """Return whether a step has happened on one of some nodes."""
    match step:
        case Step.MARKED:
            return has_mark(cluster, nodes)
        case Step.EVICTED:
            pods = [
                item["metadata"]
                for item in cluster.api.get(PODS)["items"]
                if item["spec"]["nodeName"] in nodes
            ]
            return len(pods) < len(nodes) * len(WORK) or any("deletionTimestamp" in meta for meta in pods)
    stored = [item for item in drains(cluster) if item["spec"]["node"] in nodes]
    return any(step == Step.RECORDED or item.get("status", {}).get("begunAt") for item in stored)


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
        cluster.api.patch(DEPLOYMENT, {"spec": {"replicas": REPLICAS}})
        for aggregator in fleet.add_aggregators(REPLICAS):
            aggregator.start()
        fleet.distribute_ca()
        done, left, records = list[Kill](), set[str](), list[Any]()
        with Kubelet(cluster, random) as kubelet:
            run = _Run(fleet, make_owner(cluster), lambda: progress(len(done), kubelet.evicted))
            instants = drawn_instants(kills, random)
            for first in range(0, kills, TOGETHER):
                for kill in run.kill(instants[first : first + TOGETHER]):
                    done.append(kill)
                records += drains(cluster)
                left |= run.clear()
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

    def kill(self, instants: list[Instant]) -> Iterator[Kill]:
        """Let two new Nodes after the other fail, kill the leader at each instant, and wait for the ends of all drains.
        Yield each kill.
        """
        fleet, cluster = self._fleet, self._fleet.cluster
        first = len(self.nodes)
        nodes = [f"gpu-{first + number:03}" for number in range(FAULTS * len(instants))]
        spare = [f"spare-{first + number:03}" for number in range(SPARE)]
        uids = make_nodes(cluster, [*nodes, *spare])
        wait_until_schedulable(cluster)
        make_pods(cluster, nodes, self._owner)
        with swarm(fleet, uids, HEALTHY, *fleet.aggregators) as agents:
            agents.start()
            agents.wait_until_delivered()
            leader = wait_for_leader(fleet.aggregators)
            reports = dict.fromkeys(nodes, HEALTHY)
            for number, instant in enumerate(instants):
                if not self._goes_on():
                    break
                began, faulty = time.time(), nodes[FAULTS * number : FAULTS * (number + 1)]
                self.nodes += faulty
                reports |= dict.fromkeys(faulty, FAULTY)
                # All send a report, so that they notice now, and not at a heartbeat, which connections the last kill
                # has ended.
                agents.set_reports(reports)
                until(partial(has_happened, instant.step, cluster, faulty), every=0.01)
                happened = time.time()
                time.sleep(instant.seconds)
                killed, at = leader, time.time()
                killed.kill()
                cluster.api.patch(LEASE, {"spec": {"holderIdentity": ""}})
                leader = wait_for_leader([item for item in fleet.aggregators if item is not killed])
                yield Kill(at, killed.pod, leader.pod, list(self.nodes), began, happened, time.time())
                killed.start()
            leader.until(lambda: is_finished(cluster, self.nodes[first:]))

    def clear(self) -> set[str]:
        """Delete all Nodes with their pods and actions, and return these pods, by namespace and name."""
        api = self._fleet.cluster.api
        left = {f"{TEAM}/{item['metadata']['name']}" for item in api.get(PODS)["items"]}
        api.delete(PODS)
        api.delete(ACTIONS)
        api.delete("/api/v1/nodes")
        return left


def is_finished(cluster: Cluster, nodes: list[str]) -> bool:
    """Return whether each node has a drain that has ended."""
    ended = {"Succeeded", "Failed"}
    return {
        item["spec"]["node"] for item in drains(cluster) if item.get("status", {}).get("state") in ended
    } == set(nodes)
