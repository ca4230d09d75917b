"""Drains on a real control plane: the pods of a faulty GPU leave, whole or not at all, and no other pod does.

The ReplicaSets, the scheduler and the disruption budgets are real. There is no kubelet: the test reports the
devices of running pods, and ends the pods that are deleted, as a kubelet does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from ssl import _create_unverified_context
from typing import Any

import pytest

from nodeguard.cli.main import main
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import clear_cluster, pod
from tests.daemonset.helm import grant_rights
from tests.e2e import scene
from tests.e2e.bulk_nodes import wait_until_schedulable
from tests.e2e.fleet import Fleet
from tests.e2e.scene import ENFORCED, running_fleet
from tests.e2e.training import (
    ACTIONS,
    DRAIN,
    PODS,
    REPLICA_SETS,
    Kubelet,
    create_namespace,
    drain_states,
    drains,
    gpu_ids,
    holder,
    replica_set,
    running,
)
from tests.waiting import until

FAULTY, SPARE = "gpu-1", "gpu-2"
BUDGETS = "/apis/policy/v1/namespaces/team-a/poddisruptionbudgets"
pytestmark = pytest.mark.slow


@contextmanager
def training_fleet(cluster: Cluster) -> Iterator[Fleet]:
    """Run a fleet of two nodes, with a namespace for pods."""
    with running_fleet(cluster, policy_of("enforce"), FAULTY, SPARE) as running:
        create_namespace(cluster)
        wait_until_schedulable(cluster)
        yield running


@pytest.fixture(scope="module")
def deployed(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear_cluster(shared_cluster)
    with training_fleet(shared_cluster) as running:
        yield running


@pytest.fixture
def fleet(deployed: Fleet) -> Iterator[Fleet]:
    """A fleet that is healthy, without marks, pods and records of drains, before and after the test. Each test has a
    fault of another GPU.
    """
    yield deployed
    cluster, [aggregator] = deployed.cluster, deployed.aggregators
    for path in (REPLICA_SETS, BUDGETS, PODS, "/api/v1/namespaces/default/pods"):
        cluster.api.delete(path)
    scene.log_driver_load(deployed.agents[FAULTY])
    aggregator.until(lambda: scene.is_unmarked(cluster, FAULTY))
    aggregator.until(
        lambda: {item["status"]["state"] for item in scene.incidents(cluster, FAULTY)} == {"Resolved"}
    )
    cluster.api.delete(ACTIONS)


def policy_of(mode: str, when: str = "immediately") -> str:
    return (ENFORCED + DRAIN % mode).replace("when: immediately", f"when: {when}")


@contextmanager
def training(
    fleet: Fleet, mode: str = "enforce", *, budget: int | None = None, when: str = "immediately"
) -> Iterator[Kubelet]:
    """Run eight pods of one GPU each on the first node. budget: how many of them may be disrupted; None for no
    PodDisruptionBudget. when: of the rule of drains.
    """
    cluster, [aggregator] = fleet.cluster, fleet.aggregators
    if fleet.policy.read_text() != policy_of(mode, when):
        fleet.policy.write_text(policy_of(mode, when))
        grant_rights(cluster, policy_of(mode, when))
        aggregator.terminate()
        aggregator.start()
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
    set_schedulable(cluster, SPARE, is_schedulable=False)
    spare = [f"GPU-spare-{number}" for number in range(8)]
    with Kubelet(cluster, {FAULTY: gpu_ids(fleet, FAULTY), SPARE: spare}) as kubelet:
        cluster.api.post(REPLICA_SETS, replica_set())
        if budget is not None:
            cluster.api.post(BUDGETS, disruption_budget(budget))
        until(lambda: len(running(cluster, FAULTY)) == 8, every=0.1)
        if budget is not None:
            until(lambda: allowed(cluster) == budget, every=0.1)
        set_schedulable(cluster, SPARE, is_schedulable=True)
        yield kubelet


def set_schedulable(cluster: Cluster, name: str, *, is_schedulable: bool) -> None:
    cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": not is_schedulable}})


def gpu_of(fleet: Fleet, number: int) -> tuple[str, str]:
    """Return the address of a GPU of the faulty node, and the name of the pod that holds it."""
    return scene.GPUS[number], holder(fleet.cluster, gpu_ids(fleet, FAULTY)[number])


def incident_of(cluster: Cluster) -> str:
    """Return the name of the only open incident of the faulty node."""
    [name] = [
        item["metadata"]["name"]
        for item in scene.incidents(cluster, FAULTY)
        if item["status"]["state"] != "Resolved"
    ]
    return str(name)


def disruption_budget(count: int) -> Any:
    selector = {"matchLabels": {"app": "train"}}
    return {"metadata": {"name": "train"}, "spec": {"minAvailable": 8 - count, "selector": selector}}


def allowed(cluster: Cluster) -> int:
    status: dict[str, int] = cluster.api.get(f"{BUDGETS}/train").get("status", {})
    return status.get("disruptionsAllowed", -1)


def test_only_the_pod_that_holds_the_faulty_gpu_leaves(fleet: Fleet) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators
    with training(fleet) as kubelet:
        before = running(controlplane, FAULTY)
        gpu, victim = gpu_of(fleet, 0)
        scene.inject_gpu_fault(fleet.agents[FAULTY], gpu)
        aggregator.until(lambda: drain_states(controlplane) == ["Succeeded"])
        aggregator.until(lambda: len(running(controlplane, SPARE)) == 1)
        assert running(controlplane, FAULTY) == before - {victim}
        assert kubelet.deleted == {victim}
        [drain] = drains(controlplane)
        assert [pod["name"] for pod in drain["spec"]["pods"]] == [victim]
        assert drain["status"]["begunAt"]
        # All eight pods are of one job, and the fault hits one of them.
        assert drain["spec"]["pods"][0]["job"] == "team-a/train"
        aggregator.until(lambda: aggregator.query(f"/v1/nodes/{FAULTY}")["jobs"] == ["team-a/train"])
        for path in (f"/v1/incidents/{incident_of(controlplane)}", f"/v1/nodes/{FAULTY}"):
            [outcome] = aggregator.query(path)["job_outcomes"]
            assert (outcome["job"], outcome["state"], outcome["gone"]) == ("team-a/train", "evicted", 1)
            assert outcome["action"] == drain["metadata"]["name"]
        described = controlplane.kubectl("describe", "node", FAULTY)
        events = [" ".join(line.split()) for line in described.splitlines() if "NodeguardDrain" in line]
        [begin, end] = sorted(events, key=lambda event: "Succeeded" in event)
        reason = "quarantine of GPU 0000:1b:00"
        assert begin.startswith("Normal NodeguardDrainStarted ")
        assert begin.endswith(f" nodeguard evicts 1 pod (team-a/{victim}): {reason}, gpu-gsp-failure")
        assert end.startswith("Normal NodeguardDrainSucceeded ")
        assert end.endswith(f" nodeguard 1 pod evicted from {FAULTY}: {reason}")
        # Seven GPUs still work: the Node is not drained.
        assert drain_conditions(controlplane, FAULTY) == {}


def drain_conditions(cluster: Cluster, node: str) -> dict[str, str]:
    conditions = scene.get_node(cluster, node)["status"]["conditions"]
    return {item["type"]: item["reason"] for item in conditions if item["type"].startswith("Drain")}


def test_a_node_with_a_fault_of_all_gpus_is_drained_and_shows_it_until_its_release(fleet: Fleet) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators
    shown = list[dict[str, str]]()

    def has_conditions(*reasons: str) -> bool:
        shown.append(drain_conditions(controlplane, FAULTY))
        return list(shown[-1].values()) == list(reasons)

    with training(fleet) as kubelet:
        scene.inject_switch_fault(fleet.agents[FAULTY])
        aggregator.until(lambda: has_conditions("NodeguardDrained"))
        assert {"DrainInProgress": "NodeguardDraining"} in shown
        assert len(kubelet.deleted) == 8
        policy = fleet.policy.read_text()
        fleet.policy.write_text(f"{policy}\nmarkWith: {{condition: false}}\n")
        aggregator.until(has_conditions)
        fleet.policy.write_text(policy)
        aggregator.until(lambda: has_conditions("NodeguardDrained"))
        aggregator.kill()
        aggregator.start()
        scene.log_driver_load(fleet.agents[FAULTY])
        aggregator.until(has_conditions)
        assert scene.is_unmarked(controlplane, FAULTY)
        assert drain_conditions(controlplane, SPARE) == {}


def test_a_planned_maintenance_or_a_budget_for_one_of_eight_pods_keeps_all_of_them(fleet: Fleet) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators

    def is_shown(reason: str) -> bool:
        return reason in json.dumps(aggregator.query(f"/v1/nodes/{FAULTY}"))

    with training(fleet, budget=1) as kubelet:
        plan_maintenance(controlplane, "True")
        scene.inject_switch_fault(fleet.agents[FAULTY])
        aggregator.until(lambda: is_shown("planned: condition MaintenancePlanned is True"))
        assert scene.is_marked(controlplane, FAULTY)
        plan_maintenance(controlplane, "False")
        aggregator.until(lambda: is_shown("team-a/train allows 1 of 8"))
        assert not drains(controlplane)
        assert not kubelet.deleted
        # With the budget relaxed, the pods leave without a further request.
        controlplane.api.patch(f"{BUDGETS}/train", {"spec": {"minAvailable": 0}})
        aggregator.until(lambda: drain_states(controlplane) == ["Succeeded"])
        assert len(kubelet.deleted) == 8


def plan_maintenance(cluster: Cluster, status: str) -> None:
    """Set the condition of a planned maintenance of the faulty node, as a program that maintains nodes does."""
    condition = {"type": "MaintenancePlanned", "status": status, "reason": "Firmware"}
    patch = {"status": {"conditions": [condition]}}
    cluster.api.patch(f"/api/v1/nodes/{FAULTY}/status", patch, "strategic-merge")


def test_observe_evicts_nothing_until_an_operator_drains_the_node(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators
    with training(fleet, "observe") as kubelet:
        gpu, victim = gpu_of(fleet, 2)
        scene.inject_gpu_fault(fleet.agents[FAULTY], gpu)
        aggregator.until(lambda: victim in json.dumps(aggregator.query(f"/v1/nodes/{FAULTY}")))
        aggregator.until(lambda: "would-drain" in json.dumps(aggregator.query(f"/v1/nodes/{FAULTY}")))
        reject_pod(controlplane)
        aggregator.until(lambda: aggregator.query(f"/v1/nodes/{FAULTY}")["rejected_pods"])
        shown = aggregator.query(f"/v1/incidents/{incident_of(controlplane)}")["rejected_pods"]
        assert (shown["count"], shown["message"]) == (1, "GPU is lost")
        # No client of the network can request a drain.
        assert drain_statuses(fleet) == [404, 404, 405]
        assert not drains(controlplane)
        assert not kubelet.deleted
        command = ("drain", "node", FAULTY, "--yes", "--wait", "--by", "alice", "--socket")
        assert main([*command, str(aggregator.socket)]) == 0
        assert capsys.readouterr().out == f"1 pod evicted from {FAULTY}\n"
        assert kubelet.deleted == {victim}
        [drain] = drains(controlplane)
        assert (drain["spec"]["requestedBy"], drain["status"]["state"]) == ("alice", "Succeeded")


def reject_pod(cluster: Cluster) -> None:
    """Create a pod on the faulty node, and reject it as a kubelet does."""
    path, rejected = "/api/v1/namespaces/default/pods", pod("rejected", 1)
    rejected["spec"]["nodeName"] = FAULTY
    cluster.api.post(path, rejected)
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "GPU is lost"}
    cluster.api.patch(f"{path}/rejected/status", {"status": status})


def drain_statuses(fleet: Fleet) -> list[int]:
    """Return the status of the response to a request for a drain, for each address of an aggregator."""
    agent, [aggregator] = fleet.agents[FAULTY], fleet.aggregators
    headers = {"Authorization": f"Bearer {agent.token.read_text()}"}
    statuses = []
    for client in (
        HTTPSConnection(aggregator.address, fleet.port, context=_create_unverified_context()),
        HTTPConnection(aggregator.metrics),
        HTTPConnection(aggregator.page),
    ):
        client.request("POST", f"/v1/nodes/{FAULTY}/drain", b"{}", headers)
        statuses.append(client.getresponse().status)
        client.close()
    return statuses


def test_a_pod_gets_notice_and_leaves_early_once_its_owner_agrees(fleet: Fleet) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators

    def annotation(name: str) -> str:
        annotations: dict[str, str] = controlplane.api.get(f"{PODS}/{name}")["metadata"].get(
            "annotations", {}
        )
        return annotations.get("nodeguard.dev/drain-at", "")

    with training(fleet, when="deadline, after: 1h") as kubelet:
        gpu, victim = gpu_of(fleet, 3)
        scene.inject_gpu_fault(fleet.agents[FAULTY], gpu)
        drain_at = aggregator.until(lambda: annotation(victim))
        assert not any(annotation(name) for name in running(controlplane, FAULTY) - {victim})
        aggregator.until(lambda: drain_at in json.dumps(aggregator.query(f"/v1/nodes/{FAULTY}")["drains"]))
        events = controlplane.kubectl("describe", "pod", victim, "-n", "team-a")
        assert f"nodeguard evicts this pod at {drain_at} or later" in events
        assert not drains(controlplane)
        # A successor keeps the time.
        aggregator.kill()
        aggregator.start()
        agreed = {"metadata": {"annotations": {"nodeguard.dev/drain-now": "true"}}}
        controlplane.api.patch(f"{PODS}/{victim}", agreed)
        aggregator.until(lambda: drain_states(controlplane) == ["Succeeded"])
        assert kubelet.deleted == {victim}
        notices = [
            item for item in controlplane.api.get(ACTIONS)["items"] if item not in drains(controlplane)
        ]
        assert [item["spec"]["deadline"] for item in notices] == [drain_at]


def test_a_drain_with_a_pod_that_does_not_end_fails_and_is_left_to_a_person(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators
    with training(fleet) as kubelet:
        kubelet.hang()
        gpu, victim = gpu_of(fleet, 5)
        uid = controlplane.api.get(f"{PODS}/{victim}")["metadata"]["uid"]
        scene.inject_gpu_fault(fleet.agents[FAULTY], gpu)
        aggregator.until(
            lambda: controlplane.api.get(f"{PODS}/{victim}")["metadata"].get("deletionTimestamp")
        )
        fleet.policy.write_text(policy_of("enforce").replace("finishWithin: 1m", "finishWithin: 5s"))
        aggregator.until(lambda: drain_states(controlplane) == ["Failed"])
        [drain] = drains(controlplane)
        reason = f"0 of 1 pod gone after 5s; team-a/{victim} is still ending"
        failed = f'nodeguard_aggregator_drain_failed{{node="{FAULTY}"}}'
        assert drain["status"]["remaining"] == [uid]
        assert drain["status"]["message"] == f"{reason}: decide whether to delete the rest by hand"
        aggregator.until(lambda: aggregator.metric(failed) == 1)
        assert reason in json.dumps(aggregator.query("/v1/status")["failed_drains"])
        # nodeguard has neither deleted the pod nor shortened its grace period, and requests no second eviction.
        stored = controlplane.api.get(f"{PODS}/{victim}")
        assert (stored["metadata"]["uid"], stored["metadata"]["deletionGracePeriodSeconds"]) == (uid, 30)
        command = ("drain", "node", FAULTY, "--yes", "--by", "alice", "--socket")
        assert main([*command, str(aggregator.socket)]) == 3
        assert "is still ending" in capsys.readouterr().err


def test_a_leader_that_is_killed_in_a_drain_is_followed_by_one_that_ends_it(fleet: Fleet) -> None:
    controlplane, [aggregator] = fleet.cluster, fleet.aggregators
    with training(fleet) as kubelet:
        gpu, victim = gpu_of(fleet, 4)
        scene.inject_gpu_fault(fleet.agents[FAULTY], gpu)
        aggregator.until(lambda: drain_states(controlplane))
        aggregator.kill()
        aggregator.start()
        aggregator.until(lambda: "Succeeded" in drain_states(controlplane))
        assert kubelet.deleted == {victim}
