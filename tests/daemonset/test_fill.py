"""Who may fill what gangs avoid, as the real API server decides it when a pod is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.objects import pod
from tests.daemonset.manifests import DAEMONSET, FILL, fill

WANTED = {"nodeguard.dev/fill": "true"}
UNWANTED = {"nodeguard.dev/fill": "false"}
ADDED = [
    {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    for key in ("nodeguard.dev/domain-degraded", "nodeguard.dev/suspect")
]

# What the controllers of gangs write on their pods.
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
    """An API server with the policy, and a namespace that wants it and one that does not."""
    with new_cluster(API, {"kube-apiserver": request.param.get("kube-apiserver", ())}) as made:
        for name, labels in (("fills", WANTED), ("plain", {})):
            made.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for name in ("default", "fills", "plain"):
            # What the controllers would make.
            account = {"metadata": {"name": "default"}}
            made.api.post(f"/api/v1/namespaces/{name}/serviceaccounts", account)
        fill(made)
        yield made


def tolerated(served: Cluster, namespace: str, made: Object) -> list[Any]:
    """What a pod would tolerate of nodeguard's."""
    taken = served.api.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", made)
    found = taken["spec"].get("tolerations", [])
    return [one for one in found if one.get("key", "").startswith("nodeguard.dev/")]


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
def test_who_wants_it_gets_it(
    served: Cluster, namespace: str, labels: dict[str, str], expected: list[Object]
) -> None:
    assert tolerated(served, namespace, pod("one", labels=labels)) == expected


def test_what_a_pod_tolerates_already_stays(served: Cluster) -> None:
    own = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    made = pod("one")
    made["spec"]["tolerations"] = [own]
    taken = served.api.post("/api/v1/namespaces/fills/pods?dryRun=All", made)["spec"]["tolerations"]
    assert taken[0] == own
    assert [one for one in taken if one in ADDED] == ADDED


@pytest.mark.parametrize("label", LABELS)
def test_pods_with_a_gangs_label_never_get_it(served: Cluster, label: str) -> None:
    assert tolerated(served, "fills", pod("one", labels={label: "0"})) == []
    assert tolerated(served, "plain", pod("one", labels={label: "0", **WANTED})) == []


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_pods_with_a_gangs_annotation_never_get_it(served: Cluster, annotation: str) -> None:
    for namespace, labels in (("fills", {}), ("plain", WANTED)):
        made = pod("one", labels=labels)
        made["metadata"]["annotations"] = {annotation: "rack"}
        assert tolerated(served, namespace, made) == []


def test_pods_of_a_pod_group_never_get_it(served: Cluster) -> None:
    made = pod("one", labels=WANTED)
    made["spec"]["schedulingGroup"] = {"podGroupName": "training"}
    assert tolerated(served, "fills", made) == []


def test_other_labels_and_annotations_are_no_gangs(served: Cluster) -> None:
    made = pod("one", labels={"app": "notebook", "batch.kubernetes.io/job-name": "single"})
    made["metadata"]["annotations"] = {"team": "vision"}
    assert tolerated(served, "fills", made) == ADDED


def test_every_name_in_the_policy_is_tried_and_told() -> None:
    policy, *_ = yaml.safe_load_all((FILL / "fill.yaml").read_text())
    conditions = {one["name"]: one["expression"] for one in policy["spec"]["matchConditions"]}
    page = (DAEMONSET.parent / "docs" / "concepts" / "gangs.md").read_text()
    for kind, names in (("label", LABELS), ("annotation", ANNOTATIONS)):
        said = conditions[f"without-a-gangs-{kind}"]
        assert sorted(line.split('"')[1] for line in said.splitlines() if '",' in line) == sorted(names)
        assert all(f"`{name}`" in page for name in names)
