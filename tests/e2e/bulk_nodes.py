"""Thousands of Nodes, and tokens of their agents: bound to a pod and its Node, and signed with the cluster's key."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import jwt
import uvloop
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from nodeguard.kube.client import ApiClient
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.daemonset.manifests import AGENT, NAMESPACE
from tests.waiting import PATIENCE, until

# Seconds: longer than 200 kills of a leader on a busy machine.
_LIFE = 6 * 3600

# Requests at a time: two processors serve a few hundred a second.
_AT_ONCE = 20

Item = TypeVar("Item")
Result = TypeVar("Result")


class TokenIssuer:
    """Issues service account tokens, signed with the cluster's key."""

    def __init__(self, cluster: Cluster) -> None:
        key = (cluster.processes.directory / "service-accounts.key").read_bytes()
        self._key: Any = load_pem_private_key(key, None)
        self._kid = json.loads(cluster.api.text("/openid/v1/jwks"))["keys"][0]["kid"]
        self._issuer = json.loads(cluster.api.text("/.well-known/openid-configuration"))["issuer"]

    def token(self, name: str, uid: str, lifetime: int = _LIFE) -> str:
        """Return the token of a Node's agent. lifetime: seconds; one that has expired is negative."""
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "aud": ["nodeguard"],
            "sub": f"system:serviceaccount:{NAMESPACE}:{AGENT}",
            "iat": now + lifetime - _LIFE,
            "nbf": now + lifetime - _LIFE,
            "exp": now + lifetime,
            "kubernetes.io": {
                "namespace": NAMESPACE,
                "node": {"name": name, "uid": uid},
                "pod": {"name": f"{AGENT}-{name}", "uid": f"pod-of-{uid}"},
                "serviceaccount": {"name": AGENT, "uid": "of-the-agents"},
            },
        }
        return jwt.encode(claims, self._key, "RS256", headers={"kid": self._kid})


def make_nodes(
    cluster: Cluster, names: Iterable[str], labels: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, str]:
    """Create Nodes on which the DaemonSet puts no pods. labels: by name. Returns their uids by name."""

    async def make(api: ApiClient, name: str) -> tuple[str, str]:
        body = node(name, labels=(labels or {}).get(name))
        response = await api.request("POST", "/api/v1/nodes", body=body, timeout=PATIENCE)
        return name, json.loads(response)["metadata"]["uid"]

    return dict(for_each(cluster, names, make))


def wait_until_schedulable(cluster: Cluster) -> None:
    """Wait until the node lifecycle controller has removed the taint of every new Node."""
    tainted = list[str]()

    def has_tainted_nodes() -> bool:
        tainted[:] = [
            item["metadata"]["name"]
            for item in cluster.api.get("/api/v1/nodes")["items"]
            if any(taint["key"].startswith("node.kubernetes.io/") for taint in item["spec"].get("taints", ()))
        ]
        return bool(tainted)

    until(
        lambda: not has_tainted_nodes(),
        lambda: f"{len(tainted)} Nodes are tainted: {cluster.processes.tail('kube-controller-manager')}",
        every=0.05,
        progress=lambda: len(tainted),
    )


def for_each(
    cluster: Cluster,
    items: Iterable[Item],
    ask: Callable[[ApiClient, Item], Awaitable[Result]],
    at_once: int = _AT_ONCE,
) -> list[Result]:
    """Return the result of a request for each item. at_once: number of requests at a time."""
    return uvloop.run(_for_each(cluster, items, ask, at_once))


async def _for_each(
    cluster: Cluster, items: Iterable[Item], ask: Callable[[ApiClient, Item], Awaitable[Result]], at_once: int
) -> list[Result]:
    api = await ApiClient.connect(str(cluster.kubeconfig))
    remaining, results = iter(items), list[Result]()

    async def work() -> None:
        for item in remaining:
            results.append(await ask(api, item))

    try:
        await asyncio.gather(*(work() for _ in range(at_once)))
    finally:
        await api.close()
    return results
