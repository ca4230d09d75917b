"""The client of the Kubernetes API, on a real control plane."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.kube import client
from nodeguard.kube.access import ApiAccess
from nodeguard.kube.client import MERGE_PATCH, ApiClient, LineSplitter, LineTooLongError, Query
from nodeguard.kube.errors import ApiError, may_have_succeeded
from tests.controlplane.certificates import Authority
from tests.controlplane.cluster import Cluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.objects import node
from tests.ports import free_ports

SECRET = "top-secret-token"


async def test_requests_and_responses_are_bytes(api: ApiClient) -> None:
    created = json.loads(
        await api.request("POST", "/api/v1/nodes", body=node("node-1", labels={"rack": "r1"}))
    )
    assert created["metadata"]["name"] == "node-1"
    body = json.dumps({"metadata": {"labels": {"rack": "r2"}}}).encode()
    await api.request("PATCH", "/api/v1/nodes/node-1", body=body, content_type=MERGE_PATCH)
    listed = json.loads(
        await api.request("GET", "/api/v1/nodes", query={"labelSelector": "rack=r2", "limit": 5})
    )
    assert [item["metadata"]["name"] for item in listed["items"]] == ["node-1"]


async def test_an_error_response_has_status_reason_and_message(api: ApiClient) -> None:
    with pytest.raises(ApiError) as missing:
        await api.request("GET", "/api/v1/nodes/missing")
    assert (missing.value.status, missing.value.reason) == (404, "NotFound")
    assert str(missing.value) == (
        'the Kubernetes API returned 404 for GET /api/v1/nodes/missing: nodes "missing" not found'
    )
    await api.request("POST", "/api/v1/nodes", body=node("node-1"))
    stale = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
    with pytest.raises(ApiError) as conflict:
        await api.request("PATCH", "/api/v1/nodes/node-1", body=stale, content_type=MERGE_PATCH)
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")


async def test_a_forbidden_request_names_the_remedy(
    controlplane: Cluster, namespace: str, tmp_path: Path
) -> None:
    token = controlplane.kubectl("create", "token", "default", "-n", namespace).strip()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(controlplane.kubeconfig.read_text().replace(controlplane.token, token))
    api = await ApiClient.connect(str(kubeconfig))
    with pytest.raises(ApiError) as forbidden:
        await api.request("GET", "/api/v1/nodes")
    await api.close()
    assert forbidden.value.status == 403
    assert 'cannot list resource "nodes"' in str(forbidden.value)
    assert str(forbidden.value).endswith(
        ": grant the user or service account this right, as the manifests do"
    )


async def test_a_resource_without_its_definition_names_the_remedy(api: ApiClient) -> None:
    with pytest.raises(ApiError) as missing:
        await api.request("POST", "/apis/example.com/v1/gadgets", body={})
    assert str(missing.value) == (
        "the Kubernetes API returned 404 for POST /apis/example.com/v1/gadgets: 404 page not found: "
        "install the CustomResourceDefinition of the resource, or create the namespace"
    )
    assert [(item.verb, item.resource) for item in api.refused.current()] == [("create", "gadgets")]


async def test_a_namespace_at_its_end_names_the_remedy(controlplane: Cluster, api: ApiClient) -> None:
    controlplane.api.post(
        "/api/v1/namespaces", {"metadata": {"name": "ending", "finalizers": ["example.com/stays"]}}
    )
    controlplane.api.delete("/api/v1/namespaces/ending")
    try:
        with pytest.raises(ApiError) as refused:
            await api.request(
                "POST", "/api/v1/namespaces/ending/configmaps", body={"metadata": {"name": "decisions"}}
            )
    finally:
        controlplane.api.patch("/api/v1/namespaces/ending", {"metadata": {"finalizers": None}})
    assert (refused.value.status, refused.value.lacks_right) == (403, False)
    assert str(refused.value).endswith(
        "because it is being terminated: create the namespace again once it is gone"
    )


async def test_a_watch_yields_a_line_for_each_event(api: ApiClient, controlplane: Cluster) -> None:
    seen: list[str] = []
    query: Query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": 60}
    async with aclosing(api.stream("/api/v1/nodes", query=query)) as lines:
        controlplane.api.post("/api/v1/nodes", node("node-1"))
        async for line in lines:
            event = json.loads(line)
            seen.append(event["type"])
            if event["type"] == "ADDED":
                controlplane.api.delete("/api/v1/nodes/node-1")
            if event["type"] == "DELETED":
                break
    assert {"ADDED", "DELETED"} <= set(seen)


async def test_a_watch_ends_when_the_server_ends_it(api: ApiClient) -> None:
    query: Query = {"watch": "1", "timeoutSeconds": 1}
    assert [line async for line in api.stream("/api/v1/nodes", query=query)] == []


async def test_a_line_or_response_that_is_too_large_is_refused(
    api: ApiClient, controlplane: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 500)
    controlplane.api.post("/api/v1/nodes", node("node-1"))
    with pytest.raises(ApiError, match="exceeds nodeguard's size limit") as large:
        await api.request("GET", "/api/v1/nodes/node-1", max_bytes=500)
    assert large.value.reason == "TooLarge"
    with pytest.raises(ApiError, match="exceeds nodeguard's size limit"):
        _ = [line async for line in api.stream("/api/v1/nodes", query={"watch": "1"})]


async def test_an_unreachable_server_is_an_error(
    api: ApiClient, tmp_path: Path, controlplane: Cluster
) -> None:
    (port,) = free_ports(1)
    kubeconfig = tmp_path / "kubeconfig"
    text = controlplane.kubeconfig.read_text().replace(controlplane.url, f"https://127.0.0.1:{port}")
    kubeconfig.write_text(text)
    api = await ApiClient.connect(str(kubeconfig))
    with pytest.raises(
        ApiError, match=r"could not be reached for GET /readyz \(Connection refused\): check that it runs"
    ) as gone:
        await api.request("GET", "/readyz")
    await api.close()
    assert (gone.value.status, gone.value.reason) == (0, "Unreachable")
    assert not may_have_succeeded(gone.value)


async def test_a_request_on_a_connection_that_ends_may_have_succeeded(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        api = await ApiClient.connect(str(plain_kubeconfig(tmp_path, url)))
        with pytest.raises(ApiError, match="ended during POST /x") as lost:
            await api.request("POST", "/x", body={})
        await api.close()
    assert lost.value.reason == "Disconnected"
    assert may_have_succeeded(lost.value)


async def test_another_server_at_the_address_is_named(tmp_path: Path) -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>"
        )
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for scheme, problem in (
            (
                "http",
                "returned 404 for GET /readyz: a page of another server, or of a proxy: check the address",
            ),
            ("https", r"could not be reached for GET /readyz \(it answers without TLS\): check that it runs"),
        ):
            api = await ApiClient.connect(str(plain_kubeconfig(tmp_path, f"{scheme}://127.0.0.1:{port}")))
            with pytest.raises(ApiError, match=problem):
                await api.request("GET", "/readyz")
            await api.close()


async def test_a_request_has_a_timeout(tmp_path: Path) -> None:
    async with silent_server() as url:
        api = await ApiClient.connect(str(plain_kubeconfig(tmp_path, url)))
        with pytest.raises(
            ApiError, match=r"did not respond to GET /readyz within 0\.1 s: check its load"
        ) as late:
            await api.request("GET", "/readyz", timeout=0.1)
        await api.close()
    assert (late.value.status, late.value.reason) == (0, "Timeout")


async def test_a_closed_client_has_no_connection_of_a_cancelled_request(controlplane: Cluster) -> None:
    before = set(os.listdir("/proc/self/fd"))
    # A request takes about 4 ms: it is cancelled while it connects, during the TLS handshake, and afterwards.
    for microseconds in range(0, 10_000, 200):
        api = await ApiClient.connect(str(controlplane.kubeconfig))
        request = asyncio.create_task(api.request("GET", "/api/v1/nodes"))
        await asyncio.sleep(microseconds / 1e6)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await api.close()
        assert set(os.listdir("/proc/self/fd")) <= before, f"cancelled after {microseconds} microseconds"


async def test_a_server_with_an_untrusted_certificate_is_refused(
    controlplane: Cluster, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    other = Authority(tmp_path)
    kubeconfig.write_text(
        controlplane.kubeconfig.read_text().replace(str(controlplane.ca), str(other.certificate))
    )
    api = await ApiClient.connect(str(kubeconfig))
    with pytest.raises(ApiError, match="certificate verify failed") as refused:
        await api.request("GET", "/readyz")
    assert refused.value.reason == "Unreachable"
    # After a failed verification the authorities are read again: they rotate.
    other.certificate.write_bytes(controlplane.ca.read_bytes())
    with pytest.raises(ApiError, match="certificate verify failed"):
        await api.request("GET", "/readyz")
    assert await api.request("GET", "/readyz") == b"ok"
    await api.close()


@pytest.mark.parametrize(("days", "reason"), [(-30, "has expired"), (30, "is not valid yet")])
async def test_the_error_of_an_expired_certificate_names_the_clock(
    tmp_path: Path, days: int, reason: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("kube-apiserver", "127.0.0.1", days=days)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(pair.certificate, pair.key)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=trust)
    port = server.sockets[0].getsockname()[1]
    write_kubeconfig(tmp_path / "kubeconfig", f"https://127.0.0.1:{port}", authority.certificate, "token")
    api = await ApiClient.connect(str(tmp_path / "kubeconfig"))
    with pytest.raises(
        ApiError, match=f"its certificate {reason} by the clock of this machine.*: set that clock"
    ):
        await api.request("GET", "/readyz")
    await api.close()
    server.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory; run inside a pod with a service account, or name a kubeconfig"),
        ("{}", "current-context"),
        ("nonsense", "check it with `kubectl config view`"),
        (": [", "check it with `kubectl config view`"),
    ],
)
async def test_an_unusable_kubeconfig_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ApiError) as refused:
        await ApiClient.connect(str(path))
    assert refused.value.reason == "Access"
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


async def test_of_a_list_of_kubeconfigs_those_that_exist_are_merged(tmp_path: Path) -> None:
    existing = plain_kubeconfig(tmp_path, "http://192.0.2.1")
    api = await ApiClient.connect(f"/nowhere/config:{existing}")
    assert api.url == "http://192.0.2.1"
    await api.close()
    with pytest.raises(ApiError, match="/nowhere/config: No such file or directory"):
        await ApiClient.connect("/nowhere/config:/nowhere/other")


async def test_a_context_is_chosen_and_stays_chosen(tmp_path: Path) -> None:
    path = plain_kubeconfig(tmp_path, "http://192.0.2.1")
    content = json.loads(path.read_text())
    content["clusters"].append({"name": "other", "cluster": {"server": "http://192.0.2.2"}})
    content["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "it"}})
    path.write_text(json.dumps(content))
    access = await ApiAccess.connect(str(path), "other")
    assert access.credentials.url == "http://192.0.2.2"
    await access.reload()
    assert access.credentials.url == "http://192.0.2.2"
    assert (await ApiAccess.connect(str(path))).credentials.url == "http://192.0.2.1"
    del content["current-context"]
    path.write_text(json.dumps(content))
    assert (await ApiAccess.connect(str(path), "other")).credentials.url == "http://192.0.2.2"
    with pytest.raises(ApiError, match="context 'missing': see `kubectl config get-contexts`"):
        await ApiClient.connect(str(path), "missing")
    with pytest.raises(
        ApiError, match="no kubeconfig found: name a kubeconfig with --kubeconfig or KUBECONFIG"
    ):
        await ApiClient.connect(None, "other")


async def test_outside_of_a_pod_the_error_names_a_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(
        ApiError, match=r"no kubeconfig found: run inside a pod with .*, or name a kubeconfig"
    ):
        await ApiClient.connect(None)


async def test_a_credential_program_is_run_again_after_a_401(controlplane: Cluster, tmp_path: Path) -> None:
    credential = tmp_path / "credential.json"
    kubeconfig = tmp_path / "kubeconfig"
    text = json.loads(controlplane.kubeconfig.read_text())
    version = "client.authentication.k8s.io/v1"
    text["users"][0]["user"] = {"exec": {"apiVersion": version, "command": "cat", "args": [str(credential)]}}
    kubeconfig.write_text(json.dumps(text))

    def issue(token: str) -> None:
        credential.write_text(
            json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
        )

    issue(SECRET)
    api = await ApiClient.connect(str(kubeconfig))
    with pytest.raises(ApiError, match="401"):
        await api.request("GET", "/api/v1/nodes")
    issue(controlplane.token)
    assert await api.request("GET", "/api/v1/nodes")
    await api.close()


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """A server that accepts connections and sends nothing."""
    writers = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.close()
            await writer.wait_closed()


def plain_kubeconfig(directory: Path, url: str) -> Path:
    path = directory / "kubeconfig"
    named = {"name": "it"}
    path.write_text(
        json.dumps(
            {
                "current-context": "it",
                "contexts": [{**named, "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{**named, "cluster": {"server": url}}],
                "users": [{**named, "user": {"token": SECRET}}],
            }
        )
    )
    return path


@given(st.lists(st.binary(max_size=20)))
def test_lines_do_not_depend_on_the_pieces_of_data(pieces: list[bytes]) -> None:
    lines = LineSplitter(1000)
    fed = [line for piece in pieces for line in lines.feed(piece)]
    assert fed == [line for line in b"".join(pieces).split(b"\n")[:-1] if line]


@pytest.mark.parametrize("pieces", [[b"12345", b"6"], [b"\n123456\n"]])
def test_a_line_that_is_too_long_is_refused(pieces: list[bytes]) -> None:
    lines = LineSplitter(5)
    with pytest.raises(LineTooLongError):
        _ = [line for piece in pieces for line in lines.feed(piece)]


def test_a_line_of_the_maximum_length_is_accepted() -> None:
    assert list(LineSplitter(5).feed(b"12345\n")) == [b"12345"]
