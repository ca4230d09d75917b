"""A gang over three nodes on a real control plane, one of which has a fault: all of its pods leave, or none does.

The PodGroup, its ReplicaSet, the scheduler and the disruption budget are real. There is no kubelet: see Kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nodeguard.model.mark import HOLD_ANNOTATION
from tests.controlplane.cluster import Cluster, NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.objects import GPU
from tests.e2e import scene
from tests.e2e.bulk_nodes import wait_until_schedulable
from tests.e2e.scene import ENFORCED, running_fleet
from tests.e2e.training import (
    DRAIN,
    PODS,
    REPLICA_SETS,
    TEAM,
    Kubelet,
    create_namespace,
    drain_states,
    drains,
    gpu_ids,
    replica_set,
    running,
)
from tests.waiting import until

NODES, SPARE = ("gpu-1", "gpu-2", "gpu-3"), "gpu-4"
FAULTY = NODES[0]
GROUPS = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{TEAM}/podgroups"
BUDGETS = f"/apis/policy/v1/namespaces/{TEAM}/poddisruptionbudgets"
pytestmark = pytest.mark.slow


@pytest.fixture
def controlplane(new_cluster: NewCluster) -> Iterator[Cluster]:
    """A control plane that has gangs."""
    with new_cluster(flags=GANGS) as cluster:
        yield cluster


def submit(cluster: Cluster) -> None:
    """Create a gang that needs three whole nodes, with a budget that allows two of its pods to leave, and another
    pod.
    """
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"all": {}}}
    cluster.api.post(GROUPS, {"metadata": {"name": "train"}, "spec": spec})
    work = {"image": "work", "resources": {"limits": {GPU: "8"}}}
    gang = replica_set(work, schedulingGroup={"podGroupName": "train"})
    gang["spec"]["replicas"] = 3
    cluster.api.post(REPLICA_SETS, gang)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
    cluster.api.post(BUDGETS, {"metadata": {"name": "train"}, "spec": budget})
    labels = {"app": "other"}
    other = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "w", "image": "w"}]}},
    }
    cluster.api.post(REPLICA_SETS, {"metadata": {"name": "other"}, "spec": other})


def allowed(cluster: Cluster) -> int:
    status: dict[str, int] = cluster.api.get(f"{BUDGETS}/train").get("status", {})
    return status.get("disruptionsAllowed", -1)


def gang_nodes(cluster: Cluster) -> dict[str, str]:
    """Return the node of each running pod of the gang, by name."""
    return {
        name: node for node in (*NODES, SPARE) for name in running(cluster, node) if name.startswith("train-")
    }


def test_a_gang_leaves_all_its_nodes_once_its_budget_and_its_nodes_allow_all_of_it(
    controlplane: Cluster,
) -> None:
    policy = ENFORCED + DRAIN % "enforce"
    with running_fleet(controlplane, policy, *NODES, SPARE) as fleet:
        create_namespace(controlplane)
        wait_until_schedulable(controlplane)
        controlplane.kubectl("cordon", SPARE)
        ids = {name: gpu_ids(fleet, name) for name in (*NODES, SPARE)}
        with Kubelet(controlplane, ids) as kubelet:
            submit(controlplane)
            until(lambda: sorted(gang_nodes(controlplane).values()) == list(NODES))
            until(lambda: allowed(controlplane) == 2)
            controlplane.kubectl("uncordon", SPARE)
            before = gang_nodes(controlplane)

            scene.inject_gpu_fault(fleet.agents[FAULTY])
            [aggregator] = fleet.aggregators
            aggregator.until(
                lambda: "team-a/train allows 2 of 3" in json.dumps(aggregator.query(f"/v1/nodes/{FAULTY}"))
            )
            assert not drains(controlplane)
            assert not kubelet.deleted
            assert gang_nodes(controlplane) == before

            controlplane.kubectl("annotate", "node", NODES[2], f"{HOLD_ANNOTATION}=debug")
            controlplane.api.patch(f"{BUDGETS}/train", {"spec": {"minAvailable": 0}})
            held = f"is on {NODES[2]}: the node is on hold: debug"
            aggregator.until(lambda: held in json.dumps(aggregator.query(f"/v1/nodes/{FAULTY}")))
            assert not drains(controlplane)
            controlplane.kubectl("annotate", "node", NODES[2], f"{HOLD_ANNOTATION}-")
            aggregator.until(lambda: drain_states(controlplane) == ["Succeeded"])
            assert kubelet.deleted == before.keys()
            [drain] = drains(controlplane)
            assert {pod["name"] for pod in drain["spec"]["pods"]} == before.keys()
            assert drain["spec"]["podGroups"] == [{"namespace": TEAM, "name": "train"}]
            # The gang runs again, without the faulty node.
            aggregator.until(lambda: sorted(gang_nodes(controlplane).values()) == [*NODES[1:], SPARE])
            for name in ("train", "other"):
                controlplane.kubectl("delete", "replicaset", name, "-n", TEAM, "--wait=false")
            until(lambda: not controlplane.api.get(PODS)["items"])
