"""What people decided is kept, whoever else writes at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.config_map import ConfigMap
from nodeguard.kube.errors import ApiError
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.kube.following import running
from tests.waiting import until_async


def with_key(key: str, value: str) -> Any:
    return lambda data: {**data, key: value}


async def test_what_is_not_there_is_empty_and_made(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    one = ConfigMap(api, namespace, "decisions")
    assert await one.read() == {}
    assert await one.update(with_key("pause", "yes")) == {"pause": "yes"}
    assert await one.read() == {"pause": "yes"}


async def test_only_what_is_changed_is(api: ApiClient, controlplane: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    theirs: Object = {
        "metadata": {"name": "decisions", "labels": {"mine": "yes"}},
        "data": {"a": "1", "b": "2"},
    }
    version = controlplane.api.post(path, theirs)["metadata"]["resourceVersion"]
    one = ConfigMap(api, namespace, "decisions")
    await one.update(dict)
    assert controlplane.api.get(f"{path}/decisions")["metadata"]["resourceVersion"] == version
    await one.update(lambda data: {"b": data["b"], "c": "3"})
    found = controlplane.api.get(f"{path}/decisions")
    assert found["data"] == {"b": "2", "c": "3"}
    assert found["metadata"]["labels"] == {"mine": "yes"}


async def test_many_who_change_it_at_once(api: ApiClient, namespace: str) -> None:
    many = [ConfigMap(api, namespace, "decisions") for _ in range(5)]
    await asyncio.gather(*(one.update(with_key(f"key-{place}", "x")) for place, one in enumerate(many)))
    assert await many[0].read() == {f"key-{place}": "x" for place in range(5)}


async def test_a_refusal_is_passed_on(api: ApiClient) -> None:
    with pytest.raises(ApiError) as refused:
        await ConfigMap(api, "nowhere", "decisions").update(with_key("a", "1"))
    assert refused.value.status == 404


async def test_it_is_followed(api: ApiClient, controlplane: Cluster, namespace: str) -> None:
    given: list[Mapping[str, str]] = []
    said: list[str] = []
    one = ConfigMap(api, namespace, "decisions")
    async with running(one.watch(given.append, said.append)):
        await until_async(lambda: given == [{}])
        await one.update(with_key("pause", "yes"))
        await ConfigMap(api, namespace, "another").update(with_key("pause", "no"))
        await until_async(lambda: given[-1] == {"pause": "yes"})
        controlplane.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/decisions")
        await until_async(lambda: len(given) == 3)
    assert given == [{}, {"pause": "yes"}, {}]
    assert said == []
