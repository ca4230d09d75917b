"""Controllers of other projects as processes beside a cluster, with the definitions and webhooks of their manifests."""

from __future__ import annotations

import base64
import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.programs import manifests, program
from tests.ports import free_ports

# The label of namespaces with jobs and pods that controllers manage. Their webhooks do not receive others, which they
# could block.
QUEUED = {"tests/queued": "true"}

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}s"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# Groups of objects that tests create, beside those of the controller.
_SHARED = {"", "batch"}


class Controller(NamedTuple):
    """A controller of another project. name: of its program. module: of its manifests. definitions, webhooks: paths
    below them. group: of its kinds for which its webhooks are called. configuration: more of its configuration.
    """

    name: str
    module: str
    definitions: str
    webhooks: str
    group: str
    configuration: Object


JOB_SET = Controller(
    name="jobset",
    module="sigs.k8s.io/jobset",
    definitions="crd/bases",
    webhooks="webhook/manifests.yaml",
    group="jobset.x-k8s.io",
    configuration={"apiVersion": "config.jobset.x-k8s.io/v1alpha1"},
)
LEADER_WORKER_SET = Controller(
    name="lws",
    module="sigs.k8s.io/lws",
    definitions="crd/bases",
    webhooks="webhook/manifests.yaml",
    group="leaderworkerset.x-k8s.io",
    configuration={"apiVersion": "config.lws.x-k8s.io/v1alpha1"},
)


def start_controller(
    cluster: Cluster, controller: Controller, prefix: Callable[[Path], list[str]] = lambda directory: []
) -> None:
    """Run a controller in a cluster until that ends. Raises BuildError, ClusterError.

    prefix: returns the command that runs the program, by the directory of its certificates.
    """
    folder = manifests(controller.module)
    _define(cluster, folder / controller.definitions)
    hooks, health = free_ports(2)
    ca = base64.b64encode(cluster.ca.read_bytes()).decode()
    for configuration in _read((folder / controller.webhooks).read_text()):
        # The manifests of each project have the same name, which its installer prefixes.
        metadata = {"name": f"{controller.name}-{configuration['metadata']['name']}"}
        webhooks = list(_webhooks(configuration, controller.group, hooks, ca))
        cluster.api.post(
            _WEBHOOKS.format(configuration["kind"].lower()),
            {**configuration, "metadata": metadata, "webhooks": webhooks},
        )
    directory = cluster.processes.directory / controller.name
    directory.mkdir()
    serving = cluster.authority.issue(controller.name, "127.0.0.1")
    shutil.copyfile(serving.certificate, directory / "tls.crt")
    shutil.copyfile(serving.key, directory / "tls.key")
    config = directory / "config.yaml"
    config.write_text(json.dumps({**_configuration(directory, hooks, health), **controller.configuration}))
    command = [program(controller.name), f"--config={config}", f"--kubeconfig={cluster.kubeconfig}"]
    cluster.processes.start(controller.name, *prefix(directory), *command)
    cluster.until(lambda: _is_ready(health) and _is_open(hooks), controller.name)


def _define(cluster: Cluster, definitions: Path) -> None:
    """Define the kinds of a controller, and wait until they are served: it discovers them once."""
    kinds = set()
    for path in sorted(definitions.glob("*.yaml")):
        [definition] = _read(path.read_text())
        cluster.api.post(_DEFINITIONS, definition)
        spec = definition["spec"]
        served = [version["name"] for version in spec["versions"] if version["served"]]
        kinds |= {(f"/apis/{spec['group']}/{version}", spec["names"]["plural"]) for version in served}

    def are_served() -> bool:
        lists = {path: cluster.found(path) or {"resources": []} for path, _ in kinds}
        resources = {(path, item["name"]) for path, found in lists.items() for item in found["resources"]}
        return kinds <= resources

    cluster.until(are_served, "kube-apiserver")


def _read(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def _webhooks(configuration: Object, group: str, port: int, ca: str) -> Iterator[Object]:
    """Yield the webhooks of the kinds that tests create, with a port of this machine as their address."""
    for hook in configuration["webhooks"]:
        groups = {name for rule in hook["rules"] for name in rule["apiGroups"]}
        if not groups <= {group, *_SHARED}:
            continue
        url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
        local = {**hook, "clientConfig": {"url": url, "caBundle": ca}}
        if groups != {group}:
            local["namespaceSelector"] = {"matchLabels": QUEUED}
        yield local


def _configuration(directory: Path, hooks: int, health: int) -> Object:
    """Return what the configurations of all controllers have in common."""
    return {
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": hooks, "certDir": str(directory)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 300, "burst": 500},
    }


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, ConnectionError):
        return False


def _is_open(port: int) -> bool:
    """Return whether webhooks are served: some controllers are ready before."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False
