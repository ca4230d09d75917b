"""The admission policy for notices on a real API server: what the aggregator changes of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.api import Api, ApiError, object_path
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import pod
from tests.daemonset.helm import Helm
from tests.daemonset.manifests import AGGREGATOR, documents, token

pytestmark = pytest.mark.slow

POD = "/api/v1/namespaces/default/pods/train-0"
EVENTS = "/api/v1/namespaces/default/events"
POLICY = {"drain": {"mode": "enforce", "rules": [{"check": "gpu-lost", "when": "deadline", "after": "1h"}]}}
KINDS = {
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}

NOTICE: dict[str, Any] = {"metadata": {"annotations": {"nodeguard.dev/drain-at": "2026-11-29T14:00:00Z"}}}
REFUSED: dict[str, dict[str, Any]] = {
    "annotation of the owner": {"metadata": {"annotations": {"nodeguard.dev/drain-now": "true"}}},
    "annotation of others": {"metadata": {"annotations": {"example.com/theirs": "y"}}},
    "annotation of others removed": {"metadata": {"annotations": {"example.com/theirs": None}}},
    "label": {"metadata": {"labels": {"app": "other"}}},
    "finalizer": {"metadata": {"finalizers": ["example.com/mine"]}},
    "image": {"spec": {"containers": [{"name": "work", "image": "other"}]}},
    "deadline": {"spec": {"activeDeadlineSeconds": 1}},
}


@pytest.fixture(scope="module")
def aggregator(shared_manifests: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client with the rights and the limits of an aggregator that gives notice."""
    cluster = shared_manifests
    rendered = [
        item
        for item in Helm(tmp_path_factory.mktemp("helm")).template({"policy": POLICY})
        if item["kind"] in KINDS
    ]
    cluster.api.apply(rendered)
    created = pod("train-0", labels={"app": "train"})
    created["metadata"]["annotations"] = {"example.com/theirs": "x"}
    created["spec"]["nodeName"] = "gpu-1"
    cluster.api.post(POD.rpartition("/")[0], created)
    client = Api(cluster.port, cluster.ca, token(cluster, AGGREGATOR))
    cluster.until(lambda: "changes only" in refusal(client, REFUSED["label"]), "kube-apiserver")
    yield client
    cluster.api.delete(POD)
    plain = {object_path(item): item for item in documents() if item["kind"] in KINDS}
    for path in {object_path(item) for item in rendered} - plain.keys():
        cluster.api.delete(path)
    cluster.api.apply(plain.values())


def refusal(client: Api, change: dict[str, Any]) -> str:
    """Return why a change is refused; empty where it is admitted. It is a dry run."""
    try:
        client.patch(f"{POD}?dryRun=All", change, "strategic-merge")
    except ApiError as error:
        return str(error)
    return ""


def test_the_aggregator_writes_and_removes_a_notice(aggregator: Api) -> None:
    assert refusal(aggregator, NOTICE) == ""
    aggregator.patch(POD, NOTICE, "merge")
    assert refusal(aggregator, {"metadata": {"annotations": {"nodeguard.dev/drain-at": None}}}) == ""


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_the_aggregator_changes_nothing_else_of_a_pod(aggregator: Api, change: dict[str, Any]) -> None:
    both = {**change, "metadata": {**NOTICE["metadata"], **change.get("metadata", {})}}
    for attempt in (change, both):
        assert "changes only the annotation nodeguard.dev/drain-at of pods" in refusal(aggregator, attempt)


def test_the_aggregator_sends_events_about_pods(aggregator: Api) -> None:
    subject = {"kind": "Pod", "name": "train-0", "namespace": "default"}
    event = {
        "metadata": {"name": "train-0.1"},
        "involvedObject": subject,
        "reason": "NodeguardDrainNotice",
        "type": "Warning",
    }
    assert aggregator.post(f"{EVENTS}?dryRun=All", event)
