"""The manifests, as a site applies them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.controlplane import objects
from tests.controlplane.api import ApiError, Object
from tests.controlplane.cluster import Cluster
from tests.paths import ROOT

DAEMONSET = ROOT / "daemonset"
FILL = DAEMONSET / "fill"
NAMESPACE = "nodeguard"
AGENT, AGGREGATOR = "nodeguard-agent", "nodeguard-aggregator"

_SPACE = f"/api/v1/namespaces/{NAMESPACE}"
_INCIDENTS = "/apis/nodeguard.dev/v1alpha1/nodeincidents"
_WORKLOADS = f"/apis/apps/v1/namespaces/{NAMESPACE}"


def listed() -> list[str]:
    """Names of the files that are applied."""
    names: list[str] = yaml.safe_load((DAEMONSET / "kustomization.yaml").read_text())["resources"]
    return names


def documents() -> Iterator[Object]:
    """Every object that is applied."""
    for name in listed():
        yield from yaml.safe_load_all((DAEMONSET / name).read_text())


def document(kind: str, name: str) -> Any:
    """One object."""
    (found,) = [one for one in documents() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def apply(cluster: Cluster) -> list[Object]:
    """Apply all of them, and give what the API server has of them."""
    # A test before may have taken the namespace away, which takes a while.
    cluster.until(lambda: not _terminating(cluster), "kube-apiserver")
    said = cluster.kubectl("apply", "--server-side", "-k", str(DAEMONSET), "-o", "json")
    cluster.until(lambda: _is_served(cluster, _INCIDENTS), "kube-apiserver")
    found: list[Object] = json.loads(said)["items"]
    return found


def fill(cluster: Cluster) -> None:
    """Apply the policy that lets single-node work fill what gangs avoid, and wait until pods are judged by it."""
    cluster.kubectl("apply", "--server-side", "-f", str(FILL))
    asked = objects.pod("asked", labels={"nodeguard.dev/fill": "true"})

    def follows() -> bool:
        taken = cluster.api.post("/api/v1/namespaces/default/pods?dryRun=All", asked)
        return "nodeguard.dev/suspect" in str(taken["spec"].get("tolerations"))

    cluster.until(follows, "kube-apiserver")


def take_away(cluster: Cluster) -> None:
    """Remove what makes pods, and then the pods: no kubelet would say that they have ended; and what nodeguard has
    written beside Nodes, which is in no namespace that would take it along.
    """
    cluster.api.delete(f"{_WORKLOADS}/daemonsets")
    cluster.api.delete(f"{_WORKLOADS}/deployments")

    def gone() -> bool:
        cluster.api.delete(f"{_SPACE}/pods")
        return not cluster.api.get(f"{_SPACE}/pods")["items"]

    cluster.until(gone, "kube-controller-manager")
    for path in (_INCIDENTS, "/apis/resource.k8s.io/v1/devicetaintrules"):
        if cluster.has(path):
            cluster.api.delete(path)


def pods(cluster: Cluster, name: str) -> list[Object]:
    """The pods of the agent or of the aggregator."""
    found: list[Object] = cluster.api.get(f"{_SPACE}/pods?labelSelector=app.kubernetes.io/name={name}")[
        "items"
    ]
    return found


def token(cluster: Cluster, account: str, pod: str | None = None, audience: str | None = None) -> str:
    """A token of a service account, as the kubelet would project it into a pod. None: bound to none; for the API."""
    asked: Object = {"expirationSeconds": 3600}
    if audience is not None:
        asked["audiences"] = [audience]
    if pod is not None:
        asked["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
    path = f"{_SPACE}/serviceaccounts/{account}/token"
    made = cluster.api.post(
        path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": asked}
    )
    said: str = made["status"]["token"]
    return said


def _is_served(cluster: Cluster, path: str) -> bool:
    """Whether a kind of objects that was just defined can be asked for."""
    try:
        cluster.api.get(path)
    except ApiError as refused:
        if refused.code in {404, 429}:
            return False
        raise
    return True


def _terminating(cluster: Cluster) -> bool:
    try:
        return "deletionTimestamp" in cluster.api.get(_SPACE)["metadata"]
    except ApiError as refused:
        if refused.code == 404:
            return False
        raise
