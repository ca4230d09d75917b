"""What the owner of a gang does after the drain of one of its nodes: the table of docs/concepts/drains.md.

The drain evicts, and the owners are the real controllers of Kubernetes, JobSet and LeaderWorkerSet. All gangs lose a
node at the same time. There is no kubelet: see Kubelet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import pytest

from nodeguard.fleet.act.drain_costs import failure_of_job
from nodeguard.kube.job_retries import decode_job_retries
from nodeguard.model.job import JobRetries
from nodeguard.model.pod import NodePod, PodKey
from tests.controlplane import controllers
from tests.controlplane.api import Object
from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster, NewCluster
from tests.controlplane.commands import GANGS
from tests.daemonset.helm import grant_rights
from tests.daemonset.manifests import fill
from tests.e2e.bulk_nodes import make_nodes, wait_until_schedulable
from tests.e2e.fleet import deployed_fleet
from tests.e2e.gang_owners import (
    FAIL_ON_EVICTION,
    GANG,
    IGNORE_EVICTION,
    JOB,
    JOB_SET,
    LEADER_WORKER_SET,
    SIZE,
    STATEFUL_SET,
    Gang,
    has_failed,
    job_set_spec,
    job_spec,
    leader_worker_set_spec,
    pods_of_gangs,
    stateful_set_spec,
)
from tests.e2e.scene import ENFORCED
from tests.e2e.swarm import fatal_finding, faulty_report, healthy_report, reporting_swarm
from tests.e2e.training import TEAM, Kubelet, drains
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

Outcome = Literal[
    "one pod is created again", "all pods are created again", "the owner fails, and no pod is left"
]
ONE: Outcome = "one pod is created again"
ALL: Outcome = "all pods are created again"
NONE: Outcome = "the owner fails, and no pod is left"

RESTART_UNCOUNTED = {
    "action": "RestartJobSetAndIgnoreMaxRestarts",
    "onJobFailureReasons": ["PodFailurePolicy"],
}


class Row(NamedTuple):
    """A gang, and what must become of it. status: a part of the final status of its owner."""

    gang: Gang
    outcome: Outcome
    status: Object


def _rows() -> Iterator[tuple[str, Row]]:
    """Yield the rows of the table, each with its name, which is also that of the gang."""

    def job(name: str, outcome: Outcome, failed: int = 0, group: str = "", **spec: Any) -> tuple[str, Row]:
        gang = Gang(JOB, job_spec(name, group=bool(group), **spec), group)
        return name, Row(gang, outcome, {"failed": failed})

    def job_set(name: str, outcome: Outcome, restarts: int, counted: int, **spec: Any) -> tuple[str, Row]:
        status = {"restarts": restarts, "restartsCountTowardsMax": counted}
        return name, Row(Gang(JOB_SET, job_set_spec(name, **spec)), outcome, status)

    def leader_worker_set(
        name: str, outcome: Outcome, policy: str, *, leader: bool = False
    ) -> tuple[str, Row]:
        gang = Gang(LEADER_WORKER_SET, leader_worker_set_spec(name, policy), leader=leader)
        return name, Row(gang, outcome, {})

    yield job("job", ONE, failed=1)
    yield job("job-backoff-0", NONE, failed=SIZE, backoffLimit=0)
    yield job("job-ignore", ONE, rules=[IGNORE_EVICTION], backoffLimit=0)
    yield job("group-single", ONE, failed=1, group="single")
    yield job("group-all", ALL, failed=SIZE, group="all")
    yield job("group-all-backoff", NONE, failed=SIZE, group="all", backoffLimit=SIZE - 1)
    yield job_set("jobset", ONE, 0, 0)
    yield job_set("jobset-backoff-0", NONE, 0, 0, backoffLimit=0)
    yield job_set("jobset-restart", ALL, 1, 1, failure_policy={"maxRestarts": 1}, backoffLimit=0)
    uncounted = {"rules": [RESTART_UNCOUNTED]}
    yield job_set("jobset-uncounted", ALL, 1, 0, failure_policy=uncounted, rules=[FAIL_ON_EVICTION])
    yield leader_worker_set("lws", ALL, "RecreateGroupOnPodRestart")
    yield leader_worker_set("lws-none", ONE, "None")
    yield leader_worker_set("lws-none-leader", ALL, "None", leader=True)
    yield "statefulset", Row(Gang(STATEFUL_SET, stateful_set_spec("statefulset")), ONE, {})


ROWS = dict(_rows())
NAMES = tuple(f"gpu-{number:02}" for number in range((SIZE + 1) * len(ROWS)))
HEALTHY = healthy_report(("gpu-lost",))
POLICY = f"""{ENFORCED}
drain:
  mode: enforce
  rules: [{{check: gpu-lost, when: immediately}}]
  limits: {{nodes: 100%, newPerHour: 100, perDomain: 100}}
"""


class Drained(NamedTuple):
    """Gangs after the drains: uids of their pods before, the pods and the owners now, a Job of each before, seconds
    from the mark until then; by name. evicted: uids of the pods in the drains. faulty: names of nodes.
    """

    before: dict[str, set[str]]
    after: dict[str, dict[str, Object]]
    owners: dict[str, Object]
    jobs: dict[str, JobRetries]
    seconds: dict[str, float]
    evicted: set[str]
    faulty: set[str]


@pytest.fixture(scope="module")
def drained(new_cluster: NewCluster) -> Iterator[Drained]:
    """Gangs, each of which has lost a GPU of one node."""
    with new_cluster(flags=GANGS) as cluster:
        fill(cluster)
        for controller in (controllers.JOB_SET, controllers.LEADER_WORKER_SET):
            controllers.start_controller(cluster, controller)
        cluster.api.post("/api/v1/namespaces", {"metadata": {"name": TEAM, "labels": controllers.QUEUED}})
        cluster.until(lambda: cluster.has(SERVICE_ACCOUNT.format(TEAM)), "kube-controller-manager")
        uids = make_nodes(cluster, NAMES)
        wait_until_schedulable(cluster)
        ids = {name: [f"GPU-{number + 1}" for number in range(8)] for name in NAMES}
        with deployed_fleet(cluster) as fleet, Kubelet(cluster, ids):
            fleet.policy.write_text(POLICY)
            grant_rights(cluster, POLICY)
            with reporting_swarm(fleet, uids, HEALTHY) as (aggregator, agents):
                aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
                for name, row in ROWS.items():
                    row.gang.submit(cluster, name)
                cluster.until(lambda: all(map(is_whole, _pods(cluster).values())), "kube-controller-manager")
                before, jobs = pods_of_gangs(cluster), _jobs(cluster)
                faulty = {_victim(row.gang, before[name]) for name, row in ROWS.items()}
                broken = faulty_report(HEALTHY, fatal_finding("gpu-lost", age=60.0))
                agents.set_reports(dict.fromkeys(faulty, broken))
                yield _wait(cluster, {name: set(pods) for name, pods in before.items()}, jobs, faulty)


def _pods(cluster: Cluster) -> dict[str, dict[str, Object]]:
    """Return the pods of all gangs, also of those without any."""
    pods = pods_of_gangs(cluster)
    return {name: pods.get(name, {}) for name in ROWS}


def is_whole(pods: dict[str, Object]) -> bool:
    return [pod["status"]["phase"] for pod in pods.values()] == ["Running"] * SIZE


def _victim(gang: Gang, pods: dict[str, Object]) -> str:
    """Return the node of the pod that the drain evicts."""
    nodes = {pod["metadata"]["name"]: str(pod["spec"]["nodeName"]) for pod in pods.values()}
    return nodes[sorted(nodes)[0 if gang.leader else 1]]


def _jobs(cluster: Cluster) -> dict[str, JobRetries]:
    """Return a Job of each gang that has any, as a drain reads it, by name of the gang."""
    jobs = cluster.api.get(f"/apis/batch/v1/namespaces/{TEAM}/jobs")["items"]
    return {
        job["spec"]["template"]["metadata"]["labels"][GANG]: decode_job_retries(json.dumps(job).encode())
        for job in jobs
    }


def _wait(
    cluster: Cluster, before: dict[str, set[str]], jobs: dict[str, JobRetries], faulty: set[str]
) -> Drained:
    """Wait until each owner has done what is expected, or for as long as a test waits."""
    begin, seconds = time.monotonic(), dict[str, float]()
    while len(seconds) < len(before) and time.monotonic() < begin + PATIENCE:
        pods, owners = _pods(cluster), _owners(cluster)
        for name, row in ROWS.items():
            if outcome(before[name], pods[name], owners[name]) == row.outcome:
                seconds.setdefault(name, time.monotonic() - begin)
        time.sleep(1.0)
    evicted = {pod["uid"] for drain in drains(cluster) for pod in drain["spec"]["pods"]}
    return Drained(before, _pods(cluster), _owners(cluster), jobs, seconds, evicted, faulty)


def _owners(cluster: Cluster) -> dict[str, Object]:
    return {name: row.gang.owner(cluster, name) for name, row in ROWS.items()}


def outcome(before: set[str], after: dict[str, Object], owner: Object) -> Outcome | None:
    """Return what has become of a gang; None while it is neither whole nor at its end."""
    if has_failed(owner):
        return None if after else NONE
    if not is_whole(after):
        return None
    left = len(before & after.keys())
    return {SIZE - 1: ONE, 0: ALL}.get(left)


@pytest.mark.parametrize("name", ROWS)
def test_the_owner_of_a_gang_does_what_the_table_of_the_drain_has(name: str, drained: Drained) -> None:
    row = ROWS[name]
    print(f"{name}: {row.outcome} {drained.seconds.get(name, float('nan')):.1f} s after the fault")
    after = drained.after[name]
    assert outcome(drained.before[name], after, drained.owners[name]) == row.outcome
    status = drained.owners[name].get("status", {})
    assert {key: status.get(key, 0) for key in row.status} == row.status

    # The owner has ended the others.
    assert len(drained.evicted & drained.before[name]) == row.gang.evictions
    assert drained.faulty.isdisjoint(pod["spec"]["nodeName"] for pod in after.values())


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.gang.kind in {JOB, JOB_SET}])
def test_the_preview_of_a_drain_names_exactly_the_jobs_that_fail(name: str, drained: Drained) -> None:
    row = ROWS[name]
    has_failing_job = row.outcome == NONE or row.status.get("restarts", 0) > 0
    evicted = [NodePod(PodKey(TEAM, name, ""), "")] * row.gang.evictions
    assert bool(failure_of_job(drained.jobs[name], evicted)) == has_failing_job
