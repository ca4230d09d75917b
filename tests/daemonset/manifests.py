"""The manifests as a site applies them, and tokens of their service accounts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
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
    return map(deepcopy, _parsed())


def document(kind: str, name: str) -> Any:
    """One object."""
    [match] = [made for made in _parsed() if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    return deepcopy(match)


@cache
def _parsed() -> tuple[Object, ...]:
    """Every object that is applied, the same for each caller."""
    return tuple(
        made for name in listed() for made in yaml.load_all((DAEMONSET / name).read_text(), yaml.CSafeLoader)
    )


def apply(cluster: Cluster) -> list[Object]:
    """Apply all objects with kubectl, as the page does, and return them as the API server stores them."""
    # An earlier test may have deleted the namespace, which takes some time.
    cluster.until(lambda: not _terminating(cluster), "kube-apiserver")
    output = cluster.kubectl("apply", "--server-side", "-k", str(DAEMONSET), "-o", "json")
    cluster.until(lambda: is_served(cluster, _INCIDENTS), "kube-apiserver")
    applied: list[Object] = json.loads(output)["items"]
    return applied


def deploy(cluster: Cluster) -> None:
    """Apply all objects, as `apply` does, in a quarter of the time."""
    cluster.until(lambda: not _terminating(cluster), "kube-apiserver")
    cluster.api.apply(_parsed())
    cluster.until(lambda: is_served(cluster, _INCIDENTS), "kube-apiserver")


def fill(cluster: Cluster) -> None:
    """Apply the admission policy for single-node work, and wait until it changes new pods."""
    cluster.kubectl("apply", "--server-side", "-f", str(FILL))
    pod = objects.pod("pod", labels={"nodeguard.dev/fill": "true"})

    def is_active() -> bool:
        created = cluster.api.post("/api/v1/namespaces/default/pods?dryRun=All", pod)
        return "nodeguard.dev/suspect" in str(created["spec"].get("tolerations"))

    cluster.until(is_active, "kube-apiserver")


def take_away(cluster: Cluster) -> None:
    """Delete the workloads, then their pods, then the cluster-scoped objects that nodeguard writes.

    There is no kubelet that would end the pods. The aggregators are gone, and so is their lease: the next ones would
    wait for its end.
    """
    cluster.api.delete(f"{_WORKLOADS}/daemonsets")
    cluster.api.delete(f"{_WORKLOADS}/deployments")

    def has_no_pods() -> bool:
        cluster.api.delete(f"{_SPACE}/pods")
        return not cluster.api.get(f"{_SPACE}/pods")["items"]

    cluster.until(has_no_pods, "kube-controller-manager")
    cluster.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
    for path in (_INCIDENTS, "/apis/resource.k8s.io/v1/devicetaintrules"):
        if cluster.has(path):
            cluster.api.delete(path)


def pods(cluster: Cluster, name: str) -> list[Object]:
    """The pods of the agent or of the aggregator."""
    path = f"{_SPACE}/pods?labelSelector=app.kubernetes.io/name={name}"
    items: list[Object] = cluster.api.get(path)["items"]
    return items


def token(cluster: Cluster, account: str, pod: str | None = None, audience: str | None = None) -> str:
    """A token of a service account, as the kubelet projects it into a pod.

    pod: its name; None: bound to no pod. audience: None for the API server.
    """
    spec: Object = {"expirationSeconds": 3600}
    if audience is not None:
        spec["audiences"] = [audience]
    if pod is not None:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
    path = f"{_SPACE}/serviceaccounts/{account}/token"
    response = cluster.api.post(
        path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    )
    issued: str = response["status"]["token"]
    return issued


def is_served(cluster: Cluster, path: str) -> bool:
    """Whether the API server serves a kind of object that was just defined."""
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
