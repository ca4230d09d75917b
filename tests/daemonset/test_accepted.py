"""A real API server accepts the manifests, and real controllers schedule their pods as intended."""

from __future__ import annotations

from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.objects import node
from tests.daemonset.manifests import AGENT, AGGREGATOR, apply, documents, pods

LINUX = {"kubernetes.io/os": "linux"}
QUARANTINE = {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"}
RESERVED = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def versions(applied: list[Object]) -> dict[tuple[str, str], object]:
    """The generation of each object, or its resource version if it has no generation."""
    return {
        (made["kind"], made["metadata"]["name"]): made["metadata"].get(
            "generation", made["metadata"]["resourceVersion"]
        )
        for made in applied
    }


def test_apply_is_accepted_and_idempotent(new_cluster: NewCluster) -> None:
    with new_cluster(API) as cluster:
        first = apply(cluster)
        assert len(first) == len(list(documents()))
        assert versions(apply(cluster)) == versions(first)


def bound(controlplane: Cluster, name: str, count: int) -> list[str]:
    """The names of the Nodes to which the pods of a workload are bound. count: of the pods."""

    def bound_nodes() -> list[str]:
        nodes = sorted(pod["spec"].get("nodeName", "") for pod in pods(controlplane, name))
        return nodes if len(nodes) == count and all(nodes) else []

    return controlplane.until(bound_nodes, "kube-scheduler")


def test_an_agent_is_scheduled_on_every_linux_node(applied: Cluster) -> None:
    for name, spec in (
        ("healthy", {}),
        ("marked", {"taints": [QUARANTINE, RESERVED]}),
        ("cordoned", {"unschedulable": True}),
    ):
        applied.api.post("/api/v1/nodes", {**node(name, labels=LINUX), "spec": spec})
    applied.api.post("/api/v1/nodes", node("windows", labels={"kubernetes.io/os": "windows"}))
    assert bound(applied, AGENT, 3) == ["cordoned", "healthy", "marked"]


def test_aggregators_are_spread_over_nodes_without_taints(applied: Cluster) -> None:
    for name, taints in (("marked", [QUARANTINE]), ("reserved", [RESERVED]), ("first", []), ("second", [])):
        applied.api.post("/api/v1/nodes", {**node(name, labels=LINUX), "spec": {"taints": taints}})
    assert bound(applied, AGGREGATOR, 2) == ["first", "second"]
