"""A real API server takes the manifests, and real controllers do with them what is meant."""

from __future__ import annotations

from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.objects import node
from tests.daemonset.manifests import AGENT, AGGREGATOR, apply, documents, pods

LINUX = {"kubernetes.io/os": "linux"}
QUARANTINE = {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"}
RESERVED = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def versions(applied: list[Object]) -> dict[tuple[str, str], object]:
    """What changes with each write: the API server itself writes the status of what has a generation."""
    return {
        (one["kind"], one["metadata"]["name"]): one["metadata"].get(
            "generation", one["metadata"]["resourceVersion"]
        )
        for one in applied
    }


def test_all_is_accepted_and_a_second_time_changes_nothing(new_cluster: NewCluster) -> None:
    with new_cluster(API) as alone:
        first = apply(alone)
        assert len(first) == len(list(documents()))
        assert versions(apply(alone)) == versions(first)


def bound(controlplane: Cluster, name: str, count: int) -> list[str]:
    """The Nodes of so many pods."""

    def found() -> list[str]:
        nodes = sorted(one["spec"].get("nodeName", "") for one in pods(controlplane, name))
        return nodes if len(nodes) == count and all(nodes) else []

    return controlplane.until(found, "kube-scheduler")


def test_an_agent_comes_to_every_node_whatever_is_wrong_with_it(applied: Cluster) -> None:
    for name, spec in (
        ("well", {}),
        ("marked", {"taints": [QUARANTINE, RESERVED]}),
        ("cordoned", {"unschedulable": True}),
    ):
        applied.api.post("/api/v1/nodes", {**node(name, labels=LINUX), "spec": spec})
    applied.api.post("/api/v1/nodes", node("windows", labels={"kubernetes.io/os": "windows"}))
    assert bound(applied, AGENT, 3) == ["cordoned", "marked", "well"]


def test_the_aggregators_keep_apart_and_off_nodes_that_are_marked_or_reserved(applied: Cluster) -> None:
    for name, taints in (("marked", [QUARANTINE]), ("reserved", [RESERVED]), ("one", []), ("other", [])):
        applied.api.post("/api/v1/nodes", {**node(name, labels=LINUX), "spec": {"taints": taints}})
    assert bound(applied, AGGREGATOR, 2) == ["one", "other"]
