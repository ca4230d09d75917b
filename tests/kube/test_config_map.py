"""Operators' decisions in a ConfigMap that several aggregators write."""

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
from tests.logs import LogLines
from tests.waiting import until_async


def with_key(key: str, value: str) -> Any:
    return lambda data: {**data, key: value}


async def test_a_missing_config_map_is_empty_and_is_created(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    config_map = ConfigMap(api, namespace, "decisions")
    assert await config_map.read() == {}
    assert await config_map.update(with_key("pause", "yes")) == {"pause": "yes"}
    assert await config_map.read() == {"pause": "yes"}


async def test_an_update_changes_only_its_keys(api: ApiClient, controlplane: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    theirs: Object = {
        "metadata": {"name": "decisions", "labels": {"mine": "yes"}},
        "data": {"a": "1", "b": "2"},
    }
    version = controlplane.api.post(path, theirs)["metadata"]["resourceVersion"]
    config_map = ConfigMap(api, namespace, "decisions")
    await config_map.update(dict)
    assert controlplane.api.get(f"{path}/decisions")["metadata"]["resourceVersion"] == version
    await config_map.update(lambda data: {"b": data["b"], "c": "3"})
    stored = controlplane.api.get(f"{path}/decisions")
    assert stored["data"] == {"b": "2", "c": "3"}
    assert stored["metadata"]["labels"] == {"mine": "yes"}


async def test_simultaneous_updates_are_all_stored(api: ApiClient, namespace: str) -> None:
    many = [ConfigMap(api, namespace, "decisions") for _ in range(5)]
    await asyncio.gather(
        *(config_map.update(with_key(f"key-{place}", "x")) for place, config_map in enumerate(many))
    )
    assert await many[0].read() == {f"key-{place}": "x" for place in range(5)}


class LosingApi:
    """Loses the responses of the first changes. sends: whether the server gets them."""

    def __init__(self, api: ApiClient, count: int, *, sends: bool) -> None:
        self._api, self._left, self._sends = api, count, sends

    async def request(self, method: str, path: str, **content: Any) -> bytes:
        if method == "GET" or not self._left:
            return await self._api.request(method, path, **content)
        self._left -= 1
        if not self._sends:
            return b"<html>a gateway</html>"
        await self._api.request(method, path, **content)
        raise ApiError(0, "Timeout", "no response")


@pytest.mark.parametrize("sends", [True, False])
async def test_a_change_with_a_lost_response_is_stored(api: ApiClient, namespace: str, sends: bool) -> None:
    for value in ("created", "changed"):
        losing: Any = LosingApi(api, 1, sends=sends)
        changed = await ConfigMap(losing, namespace, "decisions").update(with_key("pause", value))
        assert changed == await ConfigMap(api, namespace, "decisions").read() == {"pause": value}


async def test_a_change_that_is_lost_again_and_again_is_an_error(api: ApiClient, namespace: str) -> None:
    losing: Any = LosingApi(api, 9, sends=False)
    with pytest.raises(ApiError, match="could not be read"):
        await ConfigMap(losing, namespace, "decisions").update(with_key("pause", "yes"))
    assert await ConfigMap(api, namespace, "decisions").read() == {}


class RefusingApi:
    """Loses the response of the first change, and then refuses a method. There is no object."""

    def __init__(self, refused: str) -> None:
        self._refused, self.methods = refused, list[str]()

    async def request(self, method: str, path: str, **content: Any) -> bytes:
        is_first_change = method != "GET" and method not in self.methods
        has_changed = "POST" in self.methods
        self.methods.append(method)
        if is_first_change:
            raise ApiError(0, "Timeout", "no response")
        if has_changed and method == self._refused:
            raise ApiError(403, "Forbidden", "it may not")
        raise ApiError(404, "NotFound", "there is none")


@pytest.mark.parametrize(("refused", "methods"), [("GET", "GET POST GET"), ("POST", "GET POST GET POST")])
async def test_a_refusal_after_a_lost_response_leaves_the_change_uncertain(
    refused: str, methods: str
) -> None:
    refusing: Any = RefusingApi(refused)
    with pytest.raises(ApiError, match="no response"):
        await ConfigMap(refusing, "here", "decisions").update(with_key("pause", "yes"))
    assert refusing.methods == methods.split()


async def test_an_error_is_raised(api: ApiClient) -> None:
    with pytest.raises(ApiError) as refused:
        await ConfigMap(api, "nowhere", "decisions").update(with_key("a", "1"))
    assert refused.value.status == 404


async def test_a_watch_reports_the_data_at_each_change(
    api: ApiClient, controlplane: Cluster, namespace: str, log: LogLines
) -> None:
    reported: list[Mapping[str, str]] = []

    config_map = ConfigMap(api, namespace, "decisions")
    async with running(config_map.watch(reported.append)):
        await until_async(lambda: reported == [{}])
        await config_map.update(with_key("pause", "yes"))
        await ConfigMap(api, namespace, "another").update(with_key("pause", "no"))
        await until_async(lambda: reported[-1] == {"pause": "yes"})
        controlplane.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/decisions")
        await until_async(lambda: len(reported) == 3)
    assert reported == [{}, {"pause": "yes"}, {}]
    assert log.text() == []
