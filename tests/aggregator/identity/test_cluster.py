"""Authentication by tokens of a real cluster, which the agent's own transport presents."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import jwt
import pytest
import pytest_asyncio

from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.http1 import HttpResponse
from nodeguard.aggregator.identity.caller import Caller, PresentedCredentials, RequestRefusedError
from nodeguard.aggregator.identity.signing_keys import SigningKeyring, fetch_keys
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.kube.client import ApiClient
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION
from tests.agent.reporting.blocking import BlockingTransport
from tests.aggregator.ingest.scene import heartbeat
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node, pod
from tests.logs import LogLines


class Scene:
    """A namespace with the agent's service account, and an agent's pod on each of two Nodes."""

    def __init__(self, cluster: Cluster, namespace: str, api: ApiClient) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.uids = {
            name: cluster.api.post("/api/v1/nodes", node(name))["metadata"]["uid"]
            for name in ("node-a", "node-b")
        }
        for account in ("agent", "other"):
            cluster.api.post(
                f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}}
            )
        self.pods = {name: self.pod(f"agent-{name}", name) for name in self.uids}
        expected = TokenRequirements(frozenset({f"{namespace}:agent"}))
        self.api = api
        self.keyring = SigningKeyring(partial(fetch_keys, api))
        self.tokens = TokenAuthenticator(expected, self.keyring, time.monotonic)

    def pod(self, name: str, on: str = "", account: str = "agent") -> str:
        made = pod(name, gpus=0)
        made["spec"] |= {"serviceAccountName": account, "schedulerName": "none"} | (
            {"nodeName": on} if on else {}
        )
        uid: str = self.cluster.api.post(f"/api/v1/namespaces/{self.namespace}/pods", made)["metadata"]["uid"]
        return uid

    def token(self, pod: str = "", account: str = "agent", audience: str = "nodeguard") -> str:
        bound = ("--bound-object-kind", "Pod", "--bound-object-name", pod) if pod else ()
        arguments = ("create", "token", account, "-n", self.namespace, "--audience", audience, *bound)
        return self.cluster.kubectl(*arguments).strip()

    def older(self, token: str) -> str:
        """Return the token as an older cluster signs it, without a Node."""
        claims = jwt.decode(token, options={"verify_signature": False})
        del claims["kubernetes.io"]["node"]
        key = (self.cluster.processes.directory / "service-accounts.key").read_bytes()
        return jwt.encode(claims, key, "RS256", headers={"kid": jwt.get_unverified_header(token)["kid"]})

    async def refused(self, token: str) -> RequestRefusedError:
        with pytest.raises(RequestRefusedError) as caught:
            await self.tokens.authenticate(PresentedCredentials(f"Bearer {token}"), time.time())
        assert token not in str(caught.value)
        return caught.value


@pytest_asyncio.fixture
async def scene(controlplane: Cluster, namespace: str) -> AsyncIterator[Scene]:
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    yield Scene(controlplane, namespace, api)
    await api.close()


async def test_a_pods_token_authorizes_its_own_node_only(scene: Scene, tmp_path: Path) -> None:
    callers: list[Caller] = []

    def handle(caller: Caller, message: object) -> Reply:
        callers.append(caller)
        return Reply(VERSION)

    ingest = IngestServer(scene.tokens, handle, lambda: None)
    await ingest.listen("127.0.0.1", 0)
    (tmp_path / "token").write_text(scene.token("agent-node-a"))
    transport = BlockingTransport(
        f"http://127.0.0.1:{ingest.ports[0]}/v1/messages", TokenFile(str(tmp_path / "token"))
    )

    async def post(node: str) -> HttpResponse:
        return await asyncio.to_thread(transport.post, heartbeat(node))

    assert (await post("node-a")).status == 200
    assert (await post("node-b")).status == 403
    (tmp_path / "token").write_text(scene.token("agent-node-b") + "\n")
    assert (await post("node-b")).status == 200
    transport.close()
    await ingest.close()
    assert callers == [Caller(name, scene.uids[name]) for name in ("node-a", "node-b")]


async def test_tokens_for_another_purpose_are_refused(scene: Scene) -> None:
    scene.pod("other", "node-a", "other")
    scene.pod("waiting")
    assert "is not for nodeguard" in str(await scene.refused(scene.token("agent-node-a", audience="api")))
    assert "another service account" in str(await scene.refused(scene.token("other", "other")))
    assert "bound to no pod" in str(await scene.refused(scene.token()))
    unbound = await scene.refused(scene.token("waiting"))
    assert "does not name the Node of its pod" in str(unbound)
    assert "not a service account token" in str(await scene.refused(scene.cluster.token))


async def test_a_token_of_a_cluster_without_node_claims_is_refused(scene: Scene) -> None:
    refused = await scene.refused(scene.older(scene.token("agent-node-b")))
    assert refused.status == 403
    assert "Kubernetes 1.30 or newer" in str(refused)


async def test_the_signing_keys_are_read_from_the_cluster(scene: Scene) -> None:
    issuer, document = await fetch_keys(scene.api)
    assert issuer == "https://kubernetes.default.svc"
    assert json.loads(document)["keys"][0]["alg"] == "RS256"


async def test_agents_authenticate_during_an_outage_of_the_api_server(scene: Scene, log: LogLines) -> None:
    first, second = (scene.token(f"agent-{name}") for name in ("node-a", "node-b"))
    await scene.tokens.authenticate(PresentedCredentials(f"Bearer {first}"), time.time())
    scene.cluster.stop("kube-apiserver")
    try:
        identity = await scene.tokens.authenticate(PresentedCredentials(f"Bearer {second}"), time.time())
        assert identity.node_names == ("node-b",)
        await scene.keyring.refresh(time.monotonic() + 60.0)
        assert "the previous keys stay in use" in log.text()[0]
        assert scene.keyring.keys is not None
    finally:
        scene.cluster.start("kube-apiserver")
        scene.cluster.ready()
