"""Definitions of nodeguard's custom resources on a control plane."""

from __future__ import annotations

from nodeguard.kube.action_store import actions_path
from nodeguard.kube.incident_writer import PATH
from tests.controlplane.api import ApiError
from tests.controlplane.cluster import Cluster
from tests.paths import ROOT

CRD = ROOT / "daemonset" / "crd-nodeincidents.yaml"
ACTIONS_CRD = ROOT / "daemonset" / "crd-nodeactions.yaml"


def define_actions(cluster: Cluster) -> None:
    """Define NodeActions."""
    cluster.kubectl("apply", "-f", str(ACTIONS_CRD))
    cluster.kubectl("wait", "--for=condition=Established", "crd/nodeactions.nodeguard.dev")
    cluster.until(lambda: is_served(cluster, actions_path("default")), "kube-apiserver")


def define_incidents(cluster: Cluster) -> None:
    """Define NodeIncidents, and delete all of them."""
    cluster.kubectl("apply", "-f", str(CRD))
    cluster.kubectl("wait", "--for=condition=Established", "crd/nodeincidents.nodeguard.dev")
    cluster.until(lambda: is_served(cluster), "kube-apiserver")
    cluster.api.delete(PATH)


def is_served(cluster: Cluster, path: str = PATH) -> bool:
    """Return whether the API serves a custom resource. path: of its objects."""
    try:
        return cluster.has(path)
    except ApiError as refused:
        if refused.code == 429:  # storage is (re)initializing
            return False
        raise
