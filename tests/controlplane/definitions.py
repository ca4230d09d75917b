"""Definitions of nodeguard's custom resources on a control plane."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from nodeguard.kube.action_store import actions_path
from nodeguard.kube.incident_writer import PATH
from tests.controlplane.api import ApiError, Object
from tests.controlplane.cluster import Cluster
from tests.paths import ROOT

CRD = ROOT / "daemonset" / "crd-nodeincidents.yaml"
ACTIONS_CRD = ROOT / "daemonset" / "crd-nodeactions.yaml"


def define_actions(cluster: Cluster) -> None:
    """Define NodeActions."""
    _define(cluster, ACTIONS_CRD, actions_path("default"))


def define_incidents(cluster: Cluster) -> None:
    """Define NodeIncidents, and delete all of them."""
    _define(cluster, CRD, PATH)
    cluster.api.delete(PATH)


def _define(cluster: Cluster, file: Path, path: str) -> None:
    """Apply a definition, and wait until the objects at a path of the API are served."""
    cluster.api.apply([_parsed(file)])
    cluster.until(lambda: is_served(cluster, path), "kube-apiserver")


@cache
def _parsed(file: Path) -> Object:
    definition: Object = yaml.safe_load(file.read_text())
    return definition


def is_served(cluster: Cluster, path: str = PATH) -> bool:
    """Return whether the API serves a custom resource. path: of its objects."""
    try:
        return cluster.has(path)
    except ApiError as refused:
        if refused.code == 429:  # storage is (re)initializing
            return False
        raise
