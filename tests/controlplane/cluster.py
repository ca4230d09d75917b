"""A cluster: etcd, an API server and, where wanted, the controllers and the scheduler, each a real process.

There is no kubelet: Nodes are made by hand, pods are bound and never run.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.controlplane.api import Api, ApiError
from tests.controlplane.certificates import Authority, signing_key
from tests.controlplane.commands import Commands, Component
from tests.controlplane.credentials import write_kubeconfig, write_tokens
from tests.controlplane.kept import Kept
from tests.controlplane.programs import program
from tests.ports import free_ports
from tests.waiting import PATIENCE

WHOLE: tuple[Component, ...] = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
API: tuple[Component, ...] = WHOLE[:2]

# Pods are refused in a namespace until the controllers have made this.
SERVICE_ACCOUNT = "/api/v1/namespaces/{}/serviceaccounts/default"

PREFIX = "nodeguard-cluster-"

Said = TypeVar("Said")


class ClusterError(Exception):
    """A cluster that did not come up, with the end of the log that says why."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster, and what one needs to speak to it as its administrator."""

    kept: Kept
    api: Api
    url: str
    ca: Path
    token: str
    kubeconfig: Path
    authority: Authority = field(repr=False)
    components: tuple[Component, ...]
    _commands: Mapping[Component, Sequence[str]] = field(repr=False)

    def kubectl(self, *words: str) -> str:
        """What kubectl says, as the administrator. Raises CalledProcessError."""
        environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(self.kubeconfig)}
        environment["KUBECACHEDIR"] = str(self.kept.directory / "kubectl")  # else it writes into the home
        return subprocess.run(
            [program("kubectl"), *words], env=environment, check=True, capture_output=True, text=True
        ).stdout

    def stop(self, component: Component) -> None:
        """Kill a component; what it kept on the disk stays."""
        self.kept.stop(component)

    def start(self, component: Component) -> None:
        """Start a component, anew where it was stopped: same port, same data. Wait with `ready`."""
        self.kept.start(component, *self._commands[component])

    def ready(self) -> None:
        """Wait until the API server is ready. Raises ClusterError."""
        self.until(lambda: _reachable(self.api), "kube-apiserver")

    def has(self, path: str) -> bool:
        """Whether there is an object at a path of the API."""
        try:
            return bool(self.api.get(path))
        except ApiError as refused:
            if refused.code == 404:
                return False
            raise

    def until(self, ask: Callable[[], Said], component: str) -> Said:
        """The first answer that is not empty. Raises ClusterError, with a component's log, where it ends or none comes."""
        end = time.monotonic() + PATIENCE
        while not (said := ask()):
            if (code := self.kept.ended(component)) is not None:
                raise ClusterError(f"{component} ended with code {code}:\n{self.kept.tail(component)}")
            if time.monotonic() > end:
                raise ClusterError(
                    f"{component}: nothing came in {PATIENCE:g} s:\n{self.kept.tail(component)}"
                )
            time.sleep(0.05)
        return said


@contextmanager
def cluster(
    components: tuple[Component, ...] = WHOLE, flags: Mapping[Component, Sequence[str]] | None = None
) -> Iterator[Cluster]:
    """A new, empty cluster. flags: more of them for a component. Raises BuildError, and ClusterError."""
    with Kept(PREFIX) as kept:
        yield _started(kept, components, flags or {})


# Starts a cluster: the function `cluster`, as the fixture `new_cluster` returns it.
NewCluster = Callable[..., AbstractContextManager[Cluster]]


def _started(
    kept: Kept, components: tuple[Component, ...], more: Mapping[Component, Sequence[str]]
) -> Cluster:
    here = kept.directory
    authority = Authority(here)
    ports = free_ports(3)
    url = f"https://127.0.0.1:{ports[0]}"
    tokens = {
        user: secrets.token_urlsafe(24) for user in ("admin", "kube-controller-manager", "kube-scheduler")
    }
    write_tokens(here / "tokens.csv", tokens)
    for user, token in tokens.items():
        write_kubeconfig(here / f"{user}.kubeconfig", url, authority.certificate, token)
    commands = Commands(here, ports, authority, signing_key(here / "service-accounts.key")).all()
    made = Cluster(
        kept=kept,
        api=Api(ports[0], authority.certificate, tokens["admin"]),
        url=url,
        ca=authority.certificate,
        token=tokens["admin"],
        kubeconfig=here / "admin.kubeconfig",
        authority=authority,
        components=components,
        _commands={name: (program(name), *commands[name], *more.get(name, ())) for name in components},
    )
    for component in API:
        made.start(component)
    made.ready()
    for component in components[len(API) :]:
        made.start(component)
    if "kube-controller-manager" in components:
        made.until(lambda: made.has(SERVICE_ACCOUNT.format("default")), "kube-controller-manager")
    return made


def _reachable(api: Api) -> bool:
    try:
        return api.text("/readyz") == "ok"
    except (OSError, ApiError):
        return False
