"""A cluster of real processes: etcd, an API server and, optionally, the controllers and the scheduler.

Usually there is no kubelet: tests create Nodes, and pods are bound but never run. tests/kubelet has real ones.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.certificates import Authority, signing_key
from tests.controlplane.commands import SERVICE_PORT, Commands, Component
from tests.controlplane.credentials import write_kubeconfig, write_tokens
from tests.controlplane.processes import SupervisedProcesses
from tests.controlplane.programs import program
from tests.ports import free_ports
from tests.waiting import PATIENCE, pause_after

WHOLE: tuple[Component, ...] = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
API: tuple[Component, ...] = WHOLE[:2]

# Pods are refused in a namespace until the controllers have created this.
SERVICE_ACCOUNT = "/api/v1/namespaces/{}/serviceaccounts/default"

PREFIX = "nodeguard-cluster-"

Answer = TypeVar("Answer")


class ClusterError(Exception):
    """A cluster that did not start. The message has the end of the log."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster, with the credentials of its administrator."""

    processes: SupervisedProcesses
    api: Api
    url: str
    ca: Path
    token: str
    kubeconfig: Path
    authority: Authority = field(repr=False)
    components: tuple[Component, ...]
    _commands: Mapping[Component, Sequence[str]] = field(repr=False)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as the administrator, and return its output. Raises CalledProcessError."""
        environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(self.kubeconfig)}
        environment["KUBECACHEDIR"] = str(
            self.processes.directory / "kubectl"
        )  # the default is in the home directory
        return subprocess.run(
            [program("kubectl"), *arguments], env=environment, check=True, capture_output=True, text=True
        ).stdout

    @property
    def port(self) -> int:
        """The port of the API server on this machine."""
        return int(self.url.rpartition(":")[2])

    def kubelet(self, node: str) -> Api:
        """Return the client of the kubelet of a node."""
        return Api(self.port, self.ca, self.token, node)

    def stop(self, component: Component) -> None:
        """Kill a component. Its data stay."""
        self.processes.stop(component)

    def start(self, component: Component) -> None:
        """Start a component, also after `stop`, with the same port and data. Wait with `ready`."""
        self.processes.start(component, *self._commands[component])

    def ready(self) -> None:
        """Wait until the API server is ready. Raises ClusterError."""
        self.until(lambda: _reachable(self.api), "kube-apiserver")

    def compact(self, version: str) -> None:
        """Remove all versions before one from etcd, as a server does every five minutes."""
        flag = "--etcd-servers="
        [etcd] = (word for word in self._commands["kube-apiserver"] if word.startswith(flag))
        body = json.dumps({"revision": version, "physical": True}).encode()
        with urlopen(f"{etcd.removeprefix(flag)}/v3/kv/compaction", body, timeout=PATIENCE):
            pass

    def found(self, path: str) -> Object | None:
        """Return the object at a path of the API; None where there is none."""
        try:
            return self.api.get(path)
        except ApiError as refused:
            if refused.code == 404:
                return None
            raise

    def has(self, path: str) -> bool:
        """Return whether an object exists at a path of the API."""
        return self.found(path) is not None

    def until(self, query: Callable[[], Answer], component: str) -> Answer:
        """Return the first answer that is not empty. Raises ClusterError with a component's log if it ends, or
        if there is no answer in time.
        """
        end = time.monotonic() + PATIENCE
        while True:
            begin = time.monotonic()
            if answer := query():
                return answer
            pause = pause_after(time.monotonic() - begin, every=0.05)
            if (code := self.processes.ended(component)) is not None:
                raise ClusterError(f"{component} ended with code {code}:\n{self.processes.tail(component)}")
            if time.monotonic() > end:
                raise ClusterError(
                    f"{component}: no answer in {PATIENCE:g} s:\n{self.processes.tail(component)}"
                )
            time.sleep(pause)


@contextmanager
def cluster(
    components: tuple[Component, ...] = WHOLE,
    flags: Mapping[Component, Sequence[str]] | None = None,
    nodes: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Run a new, empty cluster. flags: additional flags by component. Raises BuildError, ClusterError.

    nodes: names of Nodes that have a kubelet: each has a kubeconfig, and the API server listens at all addresses, at
    the port of its Service. The cluster then needs a network of its own.
    """
    with SupervisedProcesses(PREFIX) as processes:
        yield _started(processes, components, flags or {}, nodes)


# Starts a cluster: the function `cluster`, as the fixture `new_cluster` returns it.
NewCluster = Callable[..., AbstractContextManager[Cluster]]


def _started(
    processes: SupervisedProcesses,
    components: tuple[Component, ...],
    flags: Mapping[Component, Sequence[str]],
    nodes: Sequence[str],
) -> Cluster:
    here = processes.directory
    authority = Authority(here)
    ports = [SERVICE_PORT, *free_ports(2)] if nodes else free_ports(3)
    url = f"https://127.0.0.1:{ports[0]}"
    users = ["admin", "kube-controller-manager", "kube-scheduler", *(f"node:{name}" for name in nodes)]
    tokens = {user: secrets.token_urlsafe(24) for user in users}
    write_tokens(here / "tokens.csv", tokens)
    for user, token in tokens.items():
        write_kubeconfig(here / f"{user}.kubeconfig", url, authority.certificate, token)
    commands = Commands(
        here, ports, authority, signing_key(here / "service-accounts.key"), has_kubelets=bool(nodes)
    ).all()
    started = Cluster(
        processes=processes,
        api=Api(ports[0], authority.certificate, tokens["admin"]),
        url=url,
        ca=authority.certificate,
        token=tokens["admin"],
        kubeconfig=here / "admin.kubeconfig",
        authority=authority,
        components=components,
        _commands={name: (program(name), *commands[name], *flags.get(name, ())) for name in components},
    )
    for component in API:
        started.start(component)
    started.ready()
    for component in components[len(API) :]:
        started.start(component)
    if "kube-controller-manager" in components:
        started.until(lambda: started.has(SERVICE_ACCOUNT.format("default")), "kube-controller-manager")
    return started


def _reachable(api: Api) -> bool:
    try:
        return api.text("/readyz") == "ok"
    except (OSError, ApiError):
        return False
