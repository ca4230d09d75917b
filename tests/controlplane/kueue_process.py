"""Kueue as a process beside a cluster, with the definitions and webhooks of its own manifests."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from tests.controlplane.api import Object
from tests.controlplane.certificates import Pair
from tests.controlplane.cluster import Cluster
from tests.controlplane.programs import manifests, program
from tests.ports import free_ports

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"

# The label of namespaces with jobs and pods that Kueue queues. Its webhooks do not receive others, which it could block.
QUEUED = {"tests/queued": "true"}

_NAMESPACE = "kueue-system"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}s"
_SERVED = {"", "batch", "kueue.x-k8s.io"}

# Kueue reads certificates at this path, which is not configurable: it gets them there in its own mount namespace. A
# process that gains privileges loses its parent-death signal, so that it is set again.
_CERTIFICATES = "/etc/kueue/metrics/certs"
_PLACED = (
    f'mount -t tmpfs kueue /etc && mkdir -p {os.path.dirname(_CERTIFICATES)} && ln -s "$0" {_CERTIFICATES}'
    ' && exec setpriv --pdeathsig KILL -- "$@"'
)


def start_kueue(cluster: Cluster) -> None:
    """Run Kueue in a cluster until that ends. Raises BuildError, ClusterError."""
    folder = manifests("sigs.k8s.io/kueue")
    _define(cluster, folder / "crd" / "bases")
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    hooks, health = free_ports(2)
    serving = cluster.authority.issue("kueue", "127.0.0.1")
    ca = base64.b64encode(cluster.ca.read_bytes()).decode()
    for configuration in _read((folder / "webhook" / "manifests.yaml").read_text()):
        kind = configuration["kind"].lower()
        cluster.api.post(
            _WEBHOOKS.format(kind), {**configuration, "webhooks": list(_webhooks(configuration, hooks, ca))}
        )
    cluster.processes.start("kueue", *_command(cluster, serving, hooks, health))
    cluster.until(lambda: _is_ready(health), "kueue")


def _define(cluster: Cluster, definitions: Path) -> None:
    """Define Kueue's kinds, and wait until they are served: Kueue discovers them once."""
    kinds = set()
    for path in sorted(definitions.glob("*.yaml")):
        [definition] = _read(path.read_text())
        cluster.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        if any(version["name"] == "v1beta2" for version in definition["spec"]["versions"]):
            kinds.add(definition["spec"]["names"]["plural"])

    def are_served() -> bool:
        resources = cluster.api.get(KUEUE)["resources"] if cluster.has(KUEUE) else []
        return kinds <= {resource["name"] for resource in resources}

    cluster.until(are_served, "kube-apiserver")


def _read(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def _webhooks(configuration: Object, port: int, ca: str) -> Iterator[Object]:
    """Yield the webhooks of the served kinds, with a port of this machine as their address."""
    for hook in configuration["webhooks"]:
        groups = {group for rule in hook["rules"] for group in rule["apiGroups"]}
        if not groups <= _SERVED:
            continue
        url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
        local = {**hook, "clientConfig": {"url": url, "caBundle": ca}}
        if groups != {"kueue.x-k8s.io"}:
            local["namespaceSelector"] = {"matchLabels": QUEUED}
        yield local


def _command(cluster: Cluster, serving: Pair, hooks: int, health: int) -> list[str]:
    directory = cluster.processes.directory / "kueue"
    directory.mkdir()
    shutil.copyfile(serving.certificate, directory / "tls.crt")
    shutil.copyfile(serving.key, directory / "tls.key")
    config = directory / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": _NAMESPACE,
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                "metrics": {"bindAddress": "0"},
                "webhook": {"host": "127.0.0.1", "port": hooks, "certDir": str(directory)},
                "internalCertManagement": {"enable": False},
                "leaderElection": {"leaderElect": False},
                "clientConnection": {"qps": 300, "burst": 500},
                "featureGates": {"VisibilityOnDemand": False},
                "integrations": {"frameworks": ["batch/job", "pod"]},
            }
        )
    )
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    apart = ["unshare", "--mount", *rights, "sh", "-c", _PLACED, str(directory)]
    return [*apart, program("kueue"), f"--config={config}", f"--kubeconfig={cluster.kubeconfig}"]


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, ConnectionError):
        return False
