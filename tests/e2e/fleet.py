"""A fleet on a real control plane: the manifests as they are, and a process for each pod that has what the pod
would have: its token, its names, its files. There is no kubelet, and no GPU: agents read bundles.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nodeguard.aggregator.api.requests import SOCKET_PATH
from tests.controlplane.cluster import Cluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.objects import node
from tests.daemonset.manifests import (
    AGENT,
    AGGREGATOR,
    NAMESPACE,
    apply,
    document,
    pods,
    take_away,
    token,
)
from tests.daemonset.pods import Mounts, container
from tests.e2e.processes import answer, live_bundle, page, until
from tests.ports import free_ports

HOST = f"{AGGREGATOR}.{NAMESPACE}.svc"

# The ports that the manifests have.
_REPORTS, _METRICS = 8443, 9435

# Files of the manifests' volumes that tests read or write.
_CONFIG = "/etc/nodeguard/agent.yaml"
_TOKEN, _CA = "/run/secrets/nodeguard/token", "/run/secrets/nodeguard/ca.crt"
_POLICY = "/etc/nodeguard/policy.yaml"

_RESOLVING = str(Path(__file__).with_name("resolving.py"))

Said = TypeVar("Said")


class Process:
    """A process in the hands of the cluster's keeper, which may be ended and begun again."""

    def __init__(self, cluster: Cluster, name: str, metrics: str) -> None:
        self.name = name
        self.metrics = metrics
        self._cluster = cluster
        self._id = 0

    def begin(self, environment: Mapping[str, str], *words: str) -> None:
        """Start nodeguard with a command line."""
        told = [f"{name}={value}" for name, value in environment.items()]
        self._id = self._cluster.kept.start(self.name, "env", *told, sys.executable, *words)

    def kill(self) -> None:
        """End it, where it was begun, as a machine does that loses its power."""
        if self._id:
            self._cluster.kept.stop(self.name)

    def freeze(self) -> None:
        """Stop it where it is, as a machine does that hangs for a while."""
        os.kill(self._id, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, as if no time had passed."""
        os.kill(self._id, signal.SIGCONT)

    def end(self) -> int:
        """End it as the kubelet does. Gives its return code."""
        os.kill(self._id, signal.SIGTERM)
        self.until(lambda: self.code() is not None)
        code = self.code()
        assert code is not None
        return code

    @property
    def pid(self) -> int:
        """Its id; 0 before its start."""
        return self._id

    def figure(self, name: str) -> float:
        """One of the numbers that it serves, by its name and labels as they are written there; -1 where it does not."""
        lines = (line.rpartition(" ") for line in self.page("/metrics").splitlines())
        return next((float(value) for what, _, value in lines if what == name), -1.0)

    def code(self) -> int | None:
        """Its return code; None while it runs."""
        return self._cluster.kept.ended(self.name)

    def page(self, path: str) -> str:
        """One of the pages that it serves, empty where it does not."""
        return page(self.metrics, path)

    def until(self, ask: Callable[[], Said]) -> Said:
        """The first answer that is not empty; its log is shown where none comes."""
        return until(ask, self._cluster.kept.log(self.name))


class Agent(Process):
    """The agent of a Node. bundle: what it reads, to be written into. pod: its pod's name."""

    def __init__(self, fleet: Fleet, of: str, pod: str, bundle: Path) -> None:
        super().__init__(fleet.cluster, f"agent-{of}", f"127.0.0.1:{free_ports(1)[0]}")
        self.node = of
        self.pod = pod
        self.bundle = bundle
        self.directory = bundle.parent
        self._fleet = fleet
        self._container = container("DaemonSet", AGENT)
        self._mounts = Mounts(self._container, self.directory)
        self.token = self._mounts.local(_TOKEN)
        self._mounts.local(_CA).symlink_to(fleet.ca)
        self._mounts.local(_CONFIG).write_text(yaml.safe_dump(self._settings()))
        self.renew()

    def renew(self) -> None:
        """Give it a fresh token, as the kubelet does long before the old one ends."""
        made = token(self._fleet.cluster, AGENT, self.pod, "nodeguard")
        fresh = self.token.with_suffix(".new")
        fresh.write_text(made)
        fresh.rename(self.token)

    def start(self) -> None:
        """Start it, anew where it was ended. Wait with `ready`."""
        arguments = self._container["args"]
        assert arguments[-2:] == ["--root", "/host"]
        words = [*map(self._mounts.option, arguments[:-2]), "--from", str(self.bundle)]
        self.begin({"NODE_NAME": self.node}, _RESOLVING, str(self._fleet.names), *words)

    def ready(self) -> None:
        """Wait until it has read every source."""
        self.until(lambda: self.page("/readyz") == "ready\n")

    def kernel_says(self, line: str) -> None:
        """Append a line to the kernel log, as /dev/kmsg gives it."""
        with (self.bundle / "kmsg").open("a") as log:
            log.write(f"{line}\n")

    def _settings(self) -> object:
        """Return the settings of the manifest, with the paths and ports of this machine."""
        settings = self._mounts.settings(yaml.safe_load(document("ConfigMap", AGENT)["data"]["agent.yaml"]))
        aggregator = settings["aggregator"]
        addresses = [one.replace(f":{_REPORTS}/", f":{self._fleet.port}/") for one in aggregator["addresses"]]
        assert all(f"https://{HOST}:{self._fleet.port}/" in one for one in addresses)
        local = {"listen": self.metrics, "aggregator": {**aggregator, "addresses": addresses}}
        return {**settings, **local}


class Aggregator(Process):
    """An aggregator. number: of the network, under which it is reached. pod: its pod's name."""

    def __init__(self, fleet: Fleet, number: str, pod: str) -> None:
        super().__init__(fleet.cluster, f"aggregator-{number}", f"{number}:{fleet.metrics}")
        self.number = number
        self.pod = pod
        self._fleet = fleet
        self.directory = fleet.directory / number
        self.directory.mkdir()
        self._container = container("Deployment", AGGREGATOR)
        # The path of a socket may have 107 bytes.
        shared = {
            str(Path(_POLICY).parent): fleet.policy.parent,
            str(Path(SOCKET_PATH).parent): self.directory,
        }
        self._mounts = Mounts(self._container, self.directory, shared)
        self.socket = self._mounts.local(SOCKET_PATH)
        cluster, self.kubeconfig = fleet.cluster, self.directory / "kubeconfig"
        write_kubeconfig(self.kubeconfig, cluster.url, cluster.ca, token(cluster, AGGREGATOR, pod))

    def start(self) -> None:
        """Start it, anew where it was ended, and let its name be found."""
        ports = {
            f"--listen=0.0.0.0:{_REPORTS}": f"--listen={self.number}:{self._fleet.port}",
            f"--metrics=0.0.0.0:{_METRICS}": f"--metrics={self.metrics}",
            "--history=/var/lib/nodeguard": f"--history={self.directory}",
        }
        words = [ports.pop(word, self._mounts.option(word)) for word in self._container["args"]]
        assert not ports, f"the manifest does not contain {list(ports)}"
        words.append(f"--socket={self.socket}")
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": self.pod,
            "POD_IP": self.number,
        }
        assert {one["name"] for one in self._container["env"]} <= environment.keys()
        self.begin(environment, "-m", "nodeguard.cli.main", *words)
        self._fleet.name(self.number)

    def ready(self) -> None:
        """Wait until it says that it is."""
        self.until(lambda: self.page("/readyz"))

    def asked(self, path: str) -> Any:
        """What it answers to people, on its socket."""
        return answer(self.socket, path)


class Fleet:
    """What is there of it.

    port, metrics: where aggregators listen, on a number of the network each. names: who is behind the Service's
    name, in lines. ca: whom agents trust; written by `trust`. policy: the manifest's, to be written over.
    """

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.port, self.metrics = _free_on_all()
        self.names = directory / "names"
        self.names.touch()
        self.ca = directory / "ca.crt"
        self.ca.write_bytes(cluster.ca.read_bytes())
        self.policy = directory / "policy.yaml"
        self.policy.write_text(document("ConfigMap", "nodeguard-policy")["data"]["policy.yaml"])
        self.agents: dict[str, Agent] = {}
        self.aggregators: list[Aggregator] = []

    def join(
        self,
        name: str,
        bundle: str = "healthy-dgx-h100",
        labels: Mapping[str, str] | None = None,
        gpus: int = 8,
    ) -> Agent:
        """A new Node with an agent, not started yet. The pod is the one that the DaemonSet makes for it.

        gpus: as many as a device plugin would tell of.
        """
        self.cluster.api.post(
            "/api/v1/nodes", node(name, gpus, labels={"kubernetes.io/os": "linux", **(labels or {})})
        )
        pod = self.cluster.until(lambda: self._pod_on(name), "kube-controller-manager")
        directory = self.directory / name
        directory.mkdir()
        self.agents[name] = Agent(self, name, pod, live_bundle(bundle, directory))
        return self.agents[name]

    def aggregate(self, count: int = 2) -> list[Aggregator]:
        """So many aggregators more, as pods of the Deployment, not started yet."""
        taken = {one.pod for one in self.aggregators}

        def free() -> list[str]:
            found = [one["metadata"]["name"] for one in pods(self.cluster, AGGREGATOR)]
            left = sorted(set(found) - taken)
            return left if len(left) >= count else []

        made = []
        for pod in self.cluster.until(free, "kube-controller-manager")[:count]:
            made.append(Aggregator(self, f"127.0.0.{len(self.aggregators) + 1}", pod))
            self.aggregators.append(made[-1])
        return made

    def name(self, *numbers: str) -> None:
        """Let the Service's name stand for these, too."""
        known = self.names.read_text().splitlines()
        self._name(dict.fromkeys([*known, *(f"{number} {HOST}" for number in numbers)]))

    def forget(self, *numbers: str) -> None:
        """Let the Service's name stand for these no more."""
        gone = {f"{number} {HOST}" for number in numbers}
        self._name(line for line in self.names.read_text().splitlines() if line not in gone)

    def trust(self) -> None:
        """Give the agents the CA that the aggregators have written."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeguard-ca"

        def written() -> str:
            if not self.cluster.has(path):
                return ""
            said: str = self.cluster.api.get(path).get("data", {}).get("ca.crt", "")
            return said

        watched = self.aggregators[0]
        self.ca.write_text(watched.until(written))

    def _name(self, lines: Iterable[str]) -> None:
        fresh = self.names.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.names)

    def _pod_on(self, name: str) -> str:
        found = [one for one in pods(self.cluster, AGENT) if one["spec"].get("nodeName") == name]
        return found[0]["metadata"]["name"] if found else ""


@contextmanager
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    """A fleet without Nodes on a whole cluster. All that it starts ends with it."""
    directory = cluster.kept.directory / f"f-{os.urandom(2).hex()}"  # short: see Aggregator
    directory.mkdir()
    apply(cluster)
    made = Fleet(cluster, directory)
    try:
        yield made
    finally:
        for process in (*made.agents.values(), *made.aggregators):
            process.kill()
        take_away(cluster)


def _free_on_all() -> tuple[int, int]:
    """Two ports that are free on the numbers that aggregators get."""
    while True:
        first, second = free_ports(2)
        with suppress(OSError):
            for number in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
                for port in (first, second):
                    with socket.socket() as probe:
                        probe.bind((number, port))
            return first, second
