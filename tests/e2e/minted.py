"""Nodes by the thousand, and tokens for their agents: bound to a pod and its Node, as the cluster itself signs them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import jwt
import uvloop
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from nodeguard.kube.client import ApiClient
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.daemonset.manifests import AGENT, NAMESPACE
from tests.waiting import PATIENCE

_LIFE = 3600

# Requests at a time: two processors serve a few hundred a second.
_AT_ONCE = 20

One = TypeVar("One")
Made = TypeVar("Made")


class Mint:
    """Signs with the cluster's own key."""

    def __init__(self, cluster: Cluster) -> None:
        key = (cluster.kept.directory / "service-accounts.key").read_bytes()
        self._key: Any = load_pem_private_key(key, None)
        self._kid = json.loads(cluster.api.text("/openid/v1/jwks"))["keys"][0]["kid"]
        self._issuer = json.loads(cluster.api.text("/.well-known/openid-configuration"))["issuer"]

    def token(self, name: str, uid: str) -> str:
        """The token of a Node's agent."""
        now = int(time.time())
        said = {
            "iss": self._issuer,
            "aud": ["nodeguard"],
            "sub": f"system:serviceaccount:{NAMESPACE}:{AGENT}",
            "iat": now,
            "nbf": now,
            "exp": now + _LIFE,
            "kubernetes.io": {
                "namespace": NAMESPACE,
                "node": {"name": name, "uid": uid},
                "pod": {"name": f"{AGENT}-{name}", "uid": f"pod-of-{uid}"},
                "serviceaccount": {"name": AGENT, "uid": "of-the-agents"},
            },
        }
        return jwt.encode(said, self._key, "RS256", headers={"kid": self._kid})


def make_nodes(cluster: Cluster, names: Iterable[str]) -> dict[str, str]:
    """Make Nodes, on which the DaemonSet puts no pods. Gives their uids by name."""

    async def make(api: ApiClient, name: str) -> tuple[str, str]:
        answer = await api.request("POST", "/api/v1/nodes", body=node(name), timeout=PATIENCE)
        return name, json.loads(answer)["metadata"]["uid"]

    return dict(for_each(cluster, names, make))


def settled(cluster: Cluster) -> None:
    """Wait until the Nodes' controller has taken the taint away that the API server gives to every new one."""

    def untouched() -> bool:
        return any(
            taint["key"].startswith("node.kubernetes.io/")
            for one in cluster.api.get("/api/v1/nodes")["items"]
            for taint in one["spec"].get("taints", ())
        )

    cluster.until(lambda: not untouched(), "kube-controller-manager")


def for_each(
    cluster: Cluster,
    many: Iterable[One],
    ask: Callable[[ApiClient, One], Awaitable[Made]],
    at_once: int = _AT_ONCE,
) -> list[Made]:
    """What the API server answers of each of many, some at once."""
    return uvloop.run(_for_each(cluster, many, ask, at_once))


async def _for_each(
    cluster: Cluster, many: Iterable[One], ask: Callable[[ApiClient, One], Awaitable[Made]], at_once: int
) -> list[Made]:
    api = await ApiClient.connect(str(cluster.kubeconfig))
    left, found = iter(many), list[Made]()

    async def work() -> None:
        for one in left:
            found.append(await ask(api, one))

    try:
        await asyncio.gather(*(work() for _ in range(at_once)))
    finally:
        await api.close()
    return found
