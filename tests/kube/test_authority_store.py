"""The aggregator's authority in a real cluster: two replicas, each first."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from nodeguard.kube.authority_store import AuthoritySecretStore
from nodeguard.kube.client import ApiClient
from nodeguard.model.stored_authority import StoreConflictError, StoreError
from tests.controlplane.cluster import Cluster


async def test_a_second_writer_conflicts_and_reads_the_first(api: ApiClient, namespace: str) -> None:
    store, other_store = AuthoritySecretStore(api, namespace), AuthoritySecretStore(api, namespace)
    before = await store.read()
    assert (before.state, before.bundle) == (b"", "")
    results = await asyncio.gather(
        *(writer.keep(f"of {writer is store}".encode(), before) for writer in (store, other_store)),
        return_exceptions=True,
    )
    assert sorted(map(str, results)) == ["", "None"]
    assert sum(isinstance(result, StoreConflictError) for result in results) == 1
    stored = await store.read()
    assert stored == await other_store.read()
    await other_store.keep(b"next", stored)
    with pytest.raises(StoreConflictError):
        await store.keep(b"late", stored)
    assert (await store.read()).state == b"next"


async def test_the_bundle_is_in_a_config_map_and_the_key_in_a_secret(
    api: ApiClient, namespace: str, controlplane: Cluster
) -> None:
    store = AuthoritySecretStore(api, namespace)
    await store.keep(b"key", await store.read())
    await store.publish("certificates", await store.read())
    space = f"/api/v1/namespaces/{namespace}"
    shown = controlplane.api.get(f"{space}/configmaps/nodeguard-ca")
    assert shown["data"] == {"ca.crt": "certificates"}
    assert "key" not in str(shown["data"])
    stale = await store.read()
    await store.publish("newer", stale)
    with pytest.raises(StoreConflictError):
        await store.publish("older", stale)
    controlplane.api.delete(f"{space}/secrets/nodeguard-ca")
    with pytest.raises(StoreConflictError):
        await store.keep(b"gone", stale)
    assert (await store.read()).state == b""


async def test_a_forbidden_request_is_an_error_without_the_key(api: ApiClient, namespace: str, controlplane: Cluster, tmp_path: Path) -> None:  # fmt: skip
    data = {"authority.json": base64.b64encode(b"secret-key").decode()}
    controlplane.api.post(
        f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "nodeguard-ca"}, "data": data}
    )
    token = controlplane.kubectl("create", "token", "default", "-n", namespace).strip()
    (tmp_path / "kubeconfig").write_text(
        controlplane.kubeconfig.read_text().replace(controlplane.token, token)
    )
    weak = await ApiClient.connect(str(tmp_path / "kubeconfig"))
    for work in (AuthoritySecretStore(weak, namespace).read(), AuthoritySecretStore(weak, namespace).keep(b"secret-key", await AuthoritySecretStore(api, namespace).read())):  # fmt: skip
        with pytest.raises(StoreError, match="grant the service account this right") as error:
            await work
        assert "secret-key" not in str(error.value)
        assert data["authority.json"] not in str(error.value)
    await weak.close()
