"""Watches across broken connections and restarted servers."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import msgspec
import pytest

from nodeguard.kube import client
from nodeguard.kube import watch as listing
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.nodes import PATH, watch_nodes
from nodeguard.kube.nodes import decode_node as decoded
from nodeguard.kube.watch import Watch
from nodeguard.model.node import Node
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.kube.detour import Detour
from tests.kube.following import NodeRecorder, running
from tests.logs import LogLines
from tests.waiting import until_async


def make(control: Cluster, *names: str) -> None:
    for name in names:
        control.api.post("/api/v1/nodes", node(name))


def relabel(control: Cluster, name: str, rack: str) -> None:
    control.api.patch(f"{PATH}/{name}", {"metadata": {"labels": {"rack": rack}}})


async def test_a_watch_reports_all_objects_and_then_each_change(
    api: ApiClient, controlplane: Cluster, log: LogLines
) -> None:
    make(controlplane, "node-1", "node-2")
    recorder = NodeRecorder()
    follow = watch_nodes(api, recorder)
    async with running(follow):
        await until_async(lambda: recorder.syncs)
        assert recorder.names == {"node-1", "node-2"}
        assert follow.is_synced
        make(controlplane, "node-3")
        relabel(controlplane, "node-1", "r1")
        controlplane.api.delete(f"{PATH}/node-2")
        await until_async(lambda: recorder.names == {"node-1", "node-3"})
        await until_async(lambda: any(item.labels.get("rack") == "r1" for item in recorder.nodes.values()))
    assert recorder.lost == ["node-2"]
    assert (recorder.syncs, log.text()) == (1, [])


async def test_a_watch_continues_after_a_broken_connection(
    far_api: ApiClient, detour: Detour, api_server: Cluster, log: LogLines
) -> None:
    make(api_server, "node-1", "node-2")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder)):
        await until_async(lambda: recorder.syncs)
        detour.cut()
        make(api_server, "node-3")
        api_server.api.delete(f"{PATH}/node-1")
        await until_async(log.text)
        detour.restore()
        await until_async(lambda: recorder.names == {"node-2", "node-3"})
        await until_async(lambda: len(log.text()) == 2)
    assert recorder.syncs == 1  # without a second list
    assert sorted(recorder.changes) == ["node-1", "node-2", "node-3"]
    assert (
        "watch failed resource=Nodes error=the connection to the Kubernetes API at https://" in log.text()[0]
    )
    assert log.text()[1] == "INFO watch works again resource=Nodes"


async def test_a_watch_lists_again_if_its_version_has_expired(
    far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    make(api_server, "node-1", "node-2", "node-3")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder)):
        await until_async(lambda: recorder.syncs)
        detour.cut()
        make(api_server, "node-4")
        relabel(api_server, "node-3", "r1")
        api_server.api.delete(f"{PATH}/node-1")
        # A new server has no earlier versions.
        await asyncio.to_thread(restart, api_server)
        detour.restore()
        await until_async(lambda: recorder.syncs == 2)
        assert recorder.names == {"node-2", "node-3", "node-4"}
        assert recorder.lost == ["node-1"]
        assert recorder.changes.count("node-2") == 1  # it had not changed
        assert recorder.changes.count("node-3") == 2
        relabel(api_server, "node-2", "r2")
        await until_async(lambda: recorder.changes.count("node-2") == 2)


async def test_a_watch_continues_after_a_restart_of_the_server(
    far_api: ApiClient, api_server: Cluster
) -> None:
    make(api_server, "node-1")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder)):
        await until_async(lambda: recorder.syncs)
        await asyncio.to_thread(restart, api_server)
        make(api_server, "node-2")
        await until_async(lambda: recorder.names == {"node-1", "node-2"})
        api_server.api.delete(f"{PATH}/node-1")
        await until_async(lambda: recorder.names == {"node-2"})
    assert recorder.changes.count("node-1") == 1


async def test_a_stalled_connection_is_replaced(
    far_api: ApiClient,
    detour: Detour,
    api_server: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    log: LogLines,
) -> None:
    monkeypatch.setattr(client, "_WATCH_TIMEOUT", 1.0)
    make(api_server, "node-1")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder)):
        await until_async(lambda: recorder.syncs)
        detour.stall()
        make(api_server, "node-2")
        await until_async(log.text)
        detour.restore()
        await until_async(lambda: recorder.names == {"node-1", "node-2"})
    assert "did not respond to GET /api/v1/nodes within 1 s" in log.text()[0]


async def test_a_server_without_streamed_lists_is_listed_in_pages(
    monkeypatch: pytest.MonkeyPatch, older_api: ApiClient, older_api_server: Cluster, log: LogLines
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 2)
    make(older_api_server, *(f"node-{number}" for number in range(5)))
    recorder = NodeRecorder()
    async with running(watch_nodes(older_api, recorder)):
        await until_async(lambda: recorder.syncs)
        assert recorder.names == {f"node-{number}" for number in range(5)}
        older_api_server.api.delete(f"{PATH}/node-2")
        await until_async(lambda: recorder.lost == ["node-2"])
    assert log.text() == []


async def test_a_page_that_is_too_large_is_requested_in_parts(
    api: ApiClient, controlplane: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(controlplane, *(f"node-{number}" for number in range(20)))
    item = len(await api.request("GET", PATH, query={"limit": 1}))
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 3 * item)
    listed = listing.PagedList(api, PATH, {})
    assert len([item async for item in listed.items()]) == 20
    assert int(listed.version) > 0


async def test_an_object_that_cannot_be_decoded_keeps_its_last_state(
    api: ApiClient, controlplane: Cluster, log: LogLines
) -> None:
    def strict_decode(raw: msgspec.Raw) -> Node:
        decoded_node = decoded(raw)
        if decoded_node.labels.get("rack") == "wrong":
            raise msgspec.ValidationError("Expected `str`, got `int` - at `$.spec`")
        return decoded_node

    make(controlplane, "node-1", "node-2")
    recorder = NodeRecorder()
    follow: Watch[Any] = Watch(api, PATH, "Nodes", strict_decode, recorder)
    async with running(follow):
        await until_async(lambda: recorder.syncs)
        relabel(controlplane, "node-1", "wrong")
        relabel(controlplane, "node-2", "wrong")
        await until_async(lambda: len(log.text()) == 2)
        assert log.text()[0] == (
            "WARNING cannot decode an object, its last state stays in use resource=Nodes object=node-1 "
            "error=Expected `str`, got `int` - at `$.spec`"
        )
        relabel(controlplane, "node-1", "right")
        await until_async(lambda: any(item.labels.get("rack") == "right" for item in recorder.nodes.values()))
        controlplane.api.delete(f"{PATH}/node-2")
        await until_async(lambda: recorder.lost == ["node-2"])


@pytest.mark.parametrize("seed", range(3))
async def test_a_watch_converges_under_random_faults(
    far_api: ApiClient, detour: Detour, api_server: Cluster, seed: int
) -> None:
    chance = random.Random(seed)
    recorder = NodeRecorder()
    existing: set[str] = set()

    def act() -> None:
        name = f"node-{chance.randrange(8)}"
        if name not in existing:
            make(api_server, name)
            existing.add(name)
        elif chance.random() < 0.5:
            relabel(api_server, name, f"r{chance.randrange(1000)}")
        else:
            api_server.api.delete(f"{PATH}/{name}")
            existing.discard(name)

    async with running(watch_nodes(far_api, recorder)):
        for step in range(80):
            act()
            if chance.random() < 0.2:
                detour.cut()
            if chance.random() < 0.4:
                detour.restore()
            if step == 40:
                await asyncio.to_thread(restart, api_server)
            await asyncio.sleep(chance.random() * 0.05)
        detour.restore()
        expected = {
            (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
            for item in api_server.api.get(PATH)["items"]
        }
        await until_async(lambda: {(item.uid, item.version) for item in recorder.nodes.values()} == expected)
    assert recorder.names == existing


def restart(control: Cluster) -> None:
    control.stop("kube-apiserver")
    control.start("kube-apiserver")
    control.ready()


async def test_a_list_that_expires_between_two_pages_starts_again(
    monkeypatch: pytest.MonkeyPatch, older_api: ApiClient, older_api_server: Cluster, log: LogLines
) -> None:
    """The server answers later pages from etcd, and has the versions of etcd only."""
    monkeypatch.setattr(listing, "_PAGE", 2)
    names = [f"node-{number}" for number in range(7)]
    make(older_api_server, *names)
    recorder = NodeRecorder()
    watch = watch_nodes(older_api, recorder)
    request, expired = older_api.request, list[str]()

    async def request_page(*args: Any, **kwargs: Any) -> bytes:
        query = kwargs.get("query") or {}
        if "continue" in query and len(expired) < 2:
            await asyncio.to_thread(compact, older_api_server, "node-6")
            try:
                return await request(*args, **kwargs)
            except ApiError as error:
                expired.append(f"{error.status} {error.reason} {len(recorder.lost)} {recorder.syncs}")
                raise
        return await request(*args, **kwargs)

    monkeypatch.setattr(older_api, "request", request_page)
    async with running(watch):
        await until_async(lambda: len(expired) == 1)
        await asyncio.sleep(0)
        assert (watch.is_synced, recorder.syncs) == (False, 0)
        await until_async(lambda: recorder.syncs)
    # The objects of an incomplete list are known, and none of the others is gone.
    assert expired == ["410 Expired 0 0"] * 2
    assert (recorder.names, recorder.lost) == ({*names}, [])
    *failed, works = log.text()
    assert all("410 for GET /api/v1/nodes" in line for line in failed)
    assert works == "INFO watch works again resource=Nodes"


def compact(cluster: Cluster, name: str) -> None:
    """Change a Node, and remove all earlier versions from etcd."""
    changed = cluster.api.patch(
        f"{PATH}/{name}", {"metadata": {"labels": {"rack": str(time.monotonic_ns())}}}
    )
    version = changed["metadata"]["resourceVersion"]
    cluster.compact(version)
