"""The admission policy for single-node work: which new pods a real API server gives the tolerations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from nodeguard.model.mark import Mark
from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.objects import pod
from tests.daemonset.manifests import DAEMONSET, FILL, fill

WANTED = {"nodeguard.dev/fill": "true"}
UNWANTED = {"nodeguard.dev/fill": "false"}
ADDED = [
    {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    for key in sorted(mark.key for mark in Mark if mark.kind.gang_only)
]

# Labels and annotations that controllers of gangs set on their pods.
LABELS = (
    "batch.kubernetes.io/job-completion-index",
    "grove.io/podgang",
    "jobset.sigs.k8s.io/jobset-name",
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/podset",
    "leaderworkerset.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "ray.io/cluster",
    "scheduling.x-k8s.io/pod-group",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
)
ANNOTATIONS = (
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "pod-group-name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "yunikorn.apache.org/task-group-name",
)


@pytest.fixture(scope="module", params=[GANGS, {}], ids=["with PodGroups", "without PodGroups"])
def served(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    """An API server with the policy, and a namespace with and one without the label."""
    with new_cluster(API, {"kube-apiserver": request.param.get("kube-apiserver", ())}) as made:
        for name, labels in (("fills", WANTED), ("plain", {})):
            made.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for name in ("default", "fills", "plain"):
            # The controllers, which do not run, would create it.
            account = {"metadata": {"name": "default"}}
            made.api.post(f"/api/v1/namespaces/{name}/serviceaccounts", account)
        fill(made)
        yield made


def tolerated(served: Cluster, namespace: str, made: Object) -> list[Any]:
    """The tolerations of a new pod for taints of nodeguard."""
    created = served.api.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", made)
    tolerations = created["spec"].get("tolerations", [])
    return [
        toleration for toleration in tolerations if toleration.get("key", "").startswith("nodeguard.dev/")
    ]


@pytest.mark.parametrize(
    ("namespace", "labels", "expected"),
    [
        ("fills", {}, ADDED),
        ("fills", WANTED, ADDED),
        ("fills", UNWANTED, []),
        ("plain", WANTED, ADDED),
        ("plain", UNWANTED, []),
        ("plain", {}, []),
    ],
)
def test_label_of_pod_or_namespace_adds_the_tolerations(
    served: Cluster, namespace: str, labels: dict[str, str], expected: list[Object]
) -> None:
    assert tolerated(served, namespace, pod("single", labels=labels)) == expected


def test_existing_tolerations_stay(served: Cluster) -> None:
    own = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    made = pod("single")
    made["spec"]["tolerations"] = [own]
    created = served.api.post("/api/v1/namespaces/fills/pods?dryRun=All", made)
    first, *others = created["spec"]["tolerations"]
    assert first == own
    assert [toleration for toleration in others if toleration in ADDED] == ADDED


@pytest.mark.parametrize("label", LABELS)
def test_pods_with_the_label_of_a_gang_get_none(served: Cluster, label: str) -> None:
    assert tolerated(served, "fills", pod("single", labels={label: "0"})) == []
    assert tolerated(served, "plain", pod("single", labels={label: "0", **WANTED})) == []


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_pods_with_the_annotation_of_a_gang_get_none(served: Cluster, annotation: str) -> None:
    for namespace, labels in (("fills", {}), ("plain", WANTED)):
        made = pod("single", labels=labels)
        made["metadata"]["annotations"] = {annotation: "rack"}
        assert tolerated(served, namespace, made) == []


def test_pods_of_a_pod_group_get_none(served: Cluster) -> None:
    made = pod("single", labels=WANTED)
    made["spec"]["schedulingGroup"] = {"podGroupName": "training"}
    assert tolerated(served, "fills", made) == []


def test_other_labels_and_annotations_do_not_matter(served: Cluster) -> None:
    made = pod("single", labels={"app": "notebook", "batch.kubernetes.io/job-name": "single"})
    made["metadata"]["annotations"] = {"team": "vision"}
    assert tolerated(served, "fills", made) == ADDED


def test_every_name_in_the_policy_is_tested_and_documented() -> None:
    policy, *_ = yaml.safe_load_all((FILL / "fill.yaml").read_text())
    conditions = {
        condition["name"]: condition["expression"] for condition in policy["spec"]["matchConditions"]
    }
    page = (DAEMONSET.parent / "docs" / "concepts" / "gangs.md").read_text()
    for kind, names in (("label", LABELS), ("annotation", ANNOTATIONS)):
        expression = conditions[f"without-a-gangs-{kind}"]
        assert sorted(line.split('"')[1] for line in expression.splitlines() if '",' in line) == sorted(names)
        assert all(f"`{name}`" in page for name in names)
