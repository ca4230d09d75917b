"""A fleet on a real control plane: the shipped manifests, and one process for each pod.

A process gets what its pod would have: token, environment, files. There is no kubelet and no GPU: agents read
bundles.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nodeguard.aggregator.api.requests import SOCKET_PATH
from nodeguard.cli.options import CHECKS_ENVIRONMENT
from tests import waiting
from tests.controlplane.cluster import Cluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.objects import node
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, deploy, document, pods, take_away, token
from tests.daemonset.pods import Mounts, container
from tests.e2e.processes import get_page, link_bundle, query_socket, until
from tests.ports import free_ports

HOST = f"{AGGREGATOR}.{NAMESPACE}.svc"

# The ports that the manifests have.
_REPORTS, _METRICS = 8443, 9435

# Files of the manifests' volumes that tests read or write.
_CONFIG = "/etc/nodeguard/agent.yaml"
_TOKEN, _CA = "/run/secrets/nodeguard/token", "/run/secrets/nodeguard/ca.crt"
_POLICY = "/etc/nodeguard/policy.yaml"

_RESOLVE_HOSTS = str(Path(__file__).with_name("resolve_hosts.py"))
_SERVICE_ACCOUNT = str(Path(__file__).with_name("service_account.py"))

Result = TypeVar("Result")


class Process:
    """A process of the cluster that a test can stop and start again. metrics: address of its metrics."""

    def __init__(self, cluster: Cluster, name: str, metrics: str) -> None:
        self.name = name
        self.metrics = metrics
        self._cluster = cluster
        self._id = 0

    def launch(self, environment: Mapping[str, str], *arguments: str) -> None:
        """Start nodeguard with a command line."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        self._id = self._cluster.processes.start(self.name, "env", *variables, sys.executable, *arguments)

    def kill(self) -> None:
        """Kill it if it was started, as a power failure does."""
        if self._id:
            self._cluster.processes.stop(self.name)

    def suspend(self) -> None:
        """Suspend it with SIGSTOP, as if the machine hangs."""
        os.kill(self._id, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        os.kill(self._id, signal.SIGCONT)

    def terminate(self) -> int:
        """Terminate it as the kubelet does, and return its exit code."""
        os.kill(self._id, signal.SIGTERM)
        self.until(lambda: self.return_code() is not None)
        code = self.return_code()
        assert code is not None
        return code

    @property
    def pid(self) -> int:
        """Its process id; 0 before its start."""
        return self._id

    def metric(self, name: str) -> float:
        """Return the value of a metric, -1 if it is not served. name: with labels, as in the output."""
        lines = (line.rpartition(" ") for line in self.get("/metrics").splitlines())
        return next((float(value) for series, _, value in lines if series == name), -1.0)

    def return_code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._cluster.processes.ended(self.name)

    def get(self, path: str) -> str:
        """Return the HTTP response for a path, empty if there is none."""
        return get_page(self.metrics, path)

    def until(self, ask: Callable[[], Result]) -> Result:
        """Return the first true value of `ask`; on a timeout, fail with its log."""
        return until(ask, self._cluster.processes.log(self.name))


class Agent(Process):
    """The agent of a Node. bundle: the recording that it reads, which tests change. pod: name of its pod. socket:
    for commands on its node.
    """

    def __init__(self, fleet: Fleet, node_name: str, pod: str, bundle: Path) -> None:
        super().__init__(fleet.cluster, f"agent-{node_name}", f"127.0.0.1:{free_ports(1)[0]}")
        self.node = node_name
        self.pod = pod
        self.bundle = bundle
        self.directory = bundle.parent
        self.socket = self.directory / "socket"
        self._fleet = fleet
        self._container = container("DaemonSet", AGENT)
        self._mounts = Mounts(self._container, self.directory)
        self.token = self._mounts.local(_TOKEN)
        self._mounts.local(_CA).symlink_to(fleet.ca)
        self._mounts.local(_CONFIG).write_text(yaml.safe_dump(self._settings()))
        self.renew_token()

    def renew_token(self) -> None:
        """Write a new token, as the kubelet does before the old one expires."""
        replacement = self.token.with_suffix(".new")
        replacement.write_text(token(self._fleet.cluster, AGENT, self.pod, "nodeguard"))
        replacement.rename(self.token)

    def start(self) -> None:
        """Start it, or start it again. `ready` waits for it."""
        options = self._container["args"]
        assert options[-2:] == ["--root", "/host"]
        arguments = [*map(self._mounts.option, options[:-2]), "--from", str(self.bundle)]
        self.launch({"NODE_NAME": self.node}, _RESOLVE_HOSTS, str(self._fleet.hosts_file), *arguments)

    def ready(self) -> None:
        """Wait until it has read every source."""
        self.until(lambda: self.get("/readyz") == "ready\n")

    def write_kernel_log(self, line: str) -> None:
        """Append a line to the kernel log, in the format of /dev/kmsg."""
        with (self.bundle / "kmsg").open("a") as log:
            log.write(f"{line}\n")

    def _settings(self) -> object:
        """Return the settings of the manifest, with the paths and ports of this machine."""
        settings = self._mounts.settings(yaml.safe_load(document("ConfigMap", AGENT)["data"]["agent.yaml"]))
        aggregator = settings["aggregator"]
        addresses = [url.replace(f":{_REPORTS}/", f":{self._fleet.port}/") for url in aggregator["addresses"]]
        assert all(f"https://{HOST}:{self._fleet.port}/" in url for url in addresses)
        local = {
            "listen": self.metrics,
            "socket": str(self.socket),
            "aggregator": {**aggregator, "addresses": addresses},
        }
        return {**settings, **local}


class Aggregator(Process):
    """An aggregator. address: loopback address on which it listens. pod: name of its pod. page: address of its
    status page. options: in addition to those of the manifest. api_port: of the API server, or a proxy before it.
    kubeconfig: with its rights, for other commands.
    """

    def __init__(self, fleet: Fleet, address: str, pod: str) -> None:
        super().__init__(fleet.cluster, f"aggregator-{address}", f"{address}:{fleet.metrics}")
        self.address = address
        self.pod = pod
        self._fleet = fleet
        self.directory = fleet.directory / address
        self.directory.mkdir()
        self._container = fleet.aggregator_container
        # The path of a socket may have 107 bytes.
        shared = {
            str(Path(_POLICY).parent): fleet.policy.parent,
            str(Path(SOCKET_PATH).parent): self.directory,
        }
        self._mounts = Mounts(self._container, self.directory, shared)
        self.socket = self._mounts.local(SOCKET_PATH)
        self.page = f"127.0.0.1:{free_ports(1)[0]}"
        self.options: Sequence[str] = ()
        cluster, secret = fleet.cluster, token(fleet.cluster, AGGREGATOR, pod)
        self.api_port = cluster.port
        self.kubeconfig = self.directory / "kubeconfig"
        write_kubeconfig(self.kubeconfig, cluster.url, cluster.ca, secret)
        self._account = self.directory / "account"
        self._account.mkdir()
        (self._account / "ca.crt").symlink_to(cluster.ca)
        (self._account / "token").write_text(secret)

    def start(self, program: Sequence[str] = ()) -> None:
        """Start it, or start it again, and publish its address.

        program: that Python runs with a kubeconfig, in place of the present nodeguard with the pod's service account.
        """
        ports = {
            f"--listen=0.0.0.0:{_REPORTS}": f"--listen={self.address}:{self._fleet.port}",
            f"--metrics=0.0.0.0:{_METRICS}": f"--metrics={self.metrics}",
            "--history=/var/lib/nodeguard": f"--history={self.directory}",
            "--page=127.0.0.1:9436": f"--page={self.page}",
        }
        arguments = [ports.pop(option, self._mounts.option(option)) for option in self._container["args"]]
        assert not ports, f"the manifest does not contain {list(ports)}"
        arguments += [f"--socket={self.socket}", *self.options]
        environment = {
            "KUBECONFIG": str(self.kubeconfig) if program else "",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.api_port),
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": self.pod,
            "POD_IP": self.address,
            CHECKS_ENVIRONMENT: str(self._mounts.local("/etc/nodeguard-checks")),
        }
        assert {variable["name"] for variable in self._container["env"]} <= environment.keys()
        command = program or (_SERVICE_ACCOUNT, str(self._account))
        self.launch(environment, *command, *arguments)
        self._fleet.publish_address(self.address)

    def ready(self) -> None:
        """Wait until it is ready."""
        self.until(lambda: self.get("/readyz"))

    def wait_while_it_plans(self, seconds: float) -> None:
        """Wait until it has planned, or found each plan unchanged, for some seconds more.

        The number of plans says less: at rest it makes one a minute.
        """
        latest = partial(self.metric, "nodeguard_aggregator_last_plan_timestamp_seconds")
        end = self.until(lambda: max(0.0, latest())) + seconds
        self.until(lambda: latest() >= end)

    def local(self, path: str) -> Path:
        """Return where a path of its container is on this machine."""
        return self._mounts.local(path)

    def query(self, path: str) -> Any:
        """Return the JSON response of the operators' API on its socket."""
        return query_socket(self.socket, path)


class Fleet:
    """The agents and aggregators of a cluster.

    port, metrics: ports of the aggregators, each of which has its own address. hosts_file: lines of an address and
    the Service's name. ca: the CA that agents trust, see `distribute_ca`. policy: the policy file of the manifest.
    aggregator_container: that of aggregators that are added.
    """

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.port, self.metrics = _free_on_all()
        self.hosts_file = directory / "names"
        self.hosts_file.touch()
        self.ca = directory / "ca.crt"
        self.ca.write_bytes(cluster.ca.read_bytes())
        self.policy = directory / "policy.yaml"
        self.policy.write_text(document("ConfigMap", "nodeguard-policy")["data"]["policy.yaml"])
        self.aggregator_container = container("Deployment", AGGREGATOR)
        self.agents: dict[str, Agent] = {}
        self.aggregators: list[Aggregator] = []

    def add_node(self, name: str, bundle: str = "healthy-dgx-h100", gpus: int = 8) -> Agent:
        """Return the agent, not started, of a new Node, with the pod that the DaemonSet creates for it.

        gpus: number of GPUs that a device plugin would publish. A Node that a kubelet has created stays as it is.
        """
        if not self.cluster.has(f"/api/v1/nodes/{name}"):
            self.cluster.api.post("/api/v1/nodes", node(name, gpus, labels={"kubernetes.io/os": "linux"}))
        pod = self.cluster.until(lambda: self._pod_on(name), "kube-controller-manager")
        directory = self.directory / name
        directory.mkdir()
        self.agents[name] = Agent(self, name, pod, link_bundle(bundle, directory))
        return self.agents[name]

    def add_aggregators(self, count: int = 2) -> list[Aggregator]:
        """Return more aggregators, not started, one for each of `count` unused pods of the Deployment."""
        used = {aggregator.pod for aggregator in self.aggregators}

        def unused_pods() -> list[str]:
            names = sorted({item["metadata"]["name"] for item in pods(self.cluster, AGGREGATOR)} - used)
            return names if len(names) >= count else []

        made = []
        for pod in self.cluster.until(unused_pods, "kube-controller-manager")[:count]:
            made.append(Aggregator(self, f"127.0.0.{len(self.aggregators) + 1}", pod))
            self.aggregators.append(made[-1])
        return made

    def publish_address(self, *addresses: str) -> None:
        """Add addresses to the Service's name."""
        lines = self.hosts_file.read_text().splitlines()
        self._write_hosts(dict.fromkeys([*lines, *(f"{address} {HOST}" for address in addresses)]))

    def distribute_ca(self) -> None:
        """Give the agents the CA certificate that the aggregators have published."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeguard-ca"

        def certificate() -> str:
            if not self.cluster.has(path):
                return ""
            text: str = self.cluster.api.get(path).get("data", {}).get("ca.crt", "")
            return text

        def state() -> str:
            config_map = self.cluster.api.get(path) if self.cluster.has(path) else "absent"
            return f"{path} is {config_map}; {self.cluster.processes.tail(self.aggregators[0].name)}"

        self.ca.write_text(waiting.until(certificate, state, every=0.1))

    def _write_hosts(self, lines: Iterable[str]) -> None:
        fresh = self.hosts_file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.hosts_file)

    def _pod_on(self, name: str) -> str:
        names = [
            item["metadata"]["name"]
            for item in pods(self.cluster, AGENT)
            if item["spec"].get("nodeName") == name
        ]
        return names[0] if names else ""


@contextmanager
def deployed_fleet(cluster: Cluster) -> Iterator[Fleet]:
    """Deploy the manifests without any Node. All processes of the fleet end with the context."""
    directory = cluster.processes.directory / f"f-{os.urandom(2).hex()}"  # short: see Aggregator
    directory.mkdir()
    deploy(cluster)
    fleet = Fleet(cluster, directory)
    try:
        yield fleet
    finally:
        for process in (*fleet.agents.values(), *fleet.aggregators):
            process.kill()
        take_away(cluster)


def _free_on_all() -> tuple[int, int]:
    """Return two ports that are free on the addresses of all aggregators."""
    while True:
        first, second = free_ports(2)
        with suppress(OSError):
            for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
                for port in (first, second):
                    with socket.socket() as probe:
                        probe.bind((address, port))
            return first, second
