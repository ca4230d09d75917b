"""Kueue as a process beside a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from tests.controlplane.cluster import Cluster
from tests.controlplane.controllers import Controller, start_controller

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"

_NAMESPACE = "kueue-system"
_CONTROLLER = Controller(
    name="kueue",
    module="sigs.k8s.io/kueue",
    definitions="crd/bases",
    webhooks="webhook/manifests.yaml",
    group="kueue.x-k8s.io",
    configuration={
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "namespace": _NAMESPACE,
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    },
)

# Kueue reads certificates at this path, which is not configurable: it gets them there in its own mount namespace. A
# process that gains privileges loses its parent-death signal, so that it is set again.
_CERTIFICATES = "/etc/kueue/metrics/certs"
_PLACED = (
    f'mount -t tmpfs kueue /etc && mkdir -p {os.path.dirname(_CERTIFICATES)} && ln -s "$0" {_CERTIFICATES}'
    ' && exec setpriv --pdeathsig KILL -- "$@"'
)


def start_kueue(cluster: Cluster) -> None:
    """Run Kueue in a cluster until that ends. Raises BuildError, ClusterError."""
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    start_controller(cluster, _CONTROLLER, _with_certificates)


def _with_certificates(directory: Path) -> list[str]:
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *rights, "sh", "-c", _PLACED, str(directory)]
