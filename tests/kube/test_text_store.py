"""A text in a Secret and in a ConfigMap of a real cluster: two writers, each first."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.text_store import KubernetesTextStore, authority_store, ca_bundle_store
from nodeguard.model.stored_text import StoreConflictError, StoredText, StoreError
from tests.controlplane.cluster import Cluster


@pytest.mark.parametrize("store_of", [authority_store, ca_bundle_store])
async def test_a_second_writer_conflicts_and_reads_the_first(
    api: ApiClient,
    namespace: str,
    controlplane: Cluster,
    store_of: Callable[[ApiClient, str], KubernetesTextStore],
) -> None:
    store, other_store = store_of(api, namespace), store_of(api, namespace)
    missing = await store.read()
    assert missing == StoredText()
    results = await asyncio.gather(
        *(writer.write(f"of {writer is store}", missing) for writer in (store, other_store)),
        return_exceptions=True,
    )
    assert sorted(map(str, results)) == ["", "None"]
    assert sum(isinstance(result, StoreConflictError) for result in results) == 1
    stored = await store.read()
    assert stored == await other_store.read()
    await other_store.write("next", stored)
    with pytest.raises(StoreConflictError):
        await store.write("late", stored)
    assert (await store.read()).text == "next"
    stale = await store.read()
    kind, _, name = store.name.partition(" ")
    controlplane.api.delete(f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{name.partition('/')[2]}")
    with pytest.raises(StoreConflictError):
        await store.write("gone", stale)
    assert await store.read() == StoredText()


async def test_the_bundle_is_in_a_config_map_and_the_key_in_a_secret(
    api: ApiClient, namespace: str, controlplane: Cluster
) -> None:
    await authority_store(api, namespace).write("key", StoredText())
    await ca_bundle_store(api, namespace).write("certificates", StoredText())
    space = f"/api/v1/namespaces/{namespace}"
    shown = controlplane.api.get(f"{space}/configmaps/nodeguard-ca")
    assert shown["data"] == {"ca.crt": "certificates"}
    secret = controlplane.api.get(f"{space}/secrets/nodeguard-ca")
    assert secret["data"] == {"authority.json": base64.b64encode(b"key").decode()}


async def test_a_forbidden_request_is_an_error_without_the_key(
    api: ApiClient, namespace: str, controlplane: Cluster, tmp_path: Path
) -> None:
    data = {"authority.json": base64.b64encode(b"secret-key").decode()}
    controlplane.api.post(
        f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "nodeguard-ca"}, "data": data}
    )
    token = controlplane.kubectl("create", "token", "default", "-n", namespace).strip()
    (tmp_path / "kubeconfig").write_text(
        controlplane.kubeconfig.read_text().replace(controlplane.token, token)
    )
    weak = await ApiClient.connect(str(tmp_path / "kubeconfig"))
    stored = await authority_store(api, namespace).read()
    store = authority_store(weak, namespace)
    for work in (store.read(), store.write("secret-key", stored)):
        with pytest.raises(StoreError, match="grant the user or service account this right") as error:
            await work
        assert "secret-key" not in str(error.value)
        assert data["authority.json"] not in str(error.value)
    await weak.close()
