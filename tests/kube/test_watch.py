"""A collection is followed through all that a connection and a server go through."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from nodeguard.kube import client
from nodeguard.kube import watch as listing
from nodeguard.kube.client import ApiClient
from nodeguard.kube.nodes import PATH, watch_nodes
from nodeguard.kube.nodes import decode_node as decoded
from nodeguard.kube.watch import Watch
from nodeguard.model.node import Node
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.objects import node
from tests.kube.detour import Detour
from tests.kube.following import NodeRecorder, running
from tests.waiting import until_async


def make(control: Cluster, *names: str) -> None:
    for name in names:
        control.api.post("/api/v1/nodes", node(name))


def relabel(control: Cluster, name: str, rack: str) -> None:
    control.api.patch(f"{PATH}/{name}", {"metadata": {"labels": {"rack": rack}}})


async def test_all_there_is_and_then_each_change(api: ApiClient, controlplane: Cluster) -> None:
    make(controlplane, "node-1", "node-2")
    recorder = NodeRecorder()
    follow = watch_nodes(api, recorder, recorder.messages.append)
    async with running(follow):
        await until_async(lambda: recorder.syncs)
        assert recorder.names == {"node-1", "node-2"}
        assert follow.is_synced
        assert follow.last_received is not None
        make(controlplane, "node-3")
        relabel(controlplane, "node-1", "r1")
        controlplane.api.delete(f"{PATH}/node-2")
        await until_async(lambda: recorder.names == {"node-1", "node-3"})
        await until_async(lambda: any(item.labels.get("rack") == "r1" for item in recorder.nodes.values()))
    assert recorder.lost == ["node-2"]
    assert (recorder.syncs, recorder.messages) == (1, [])


async def test_a_connection_that_breaks_is_taken_up_where_it_was(
    far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    make(api_server, "node-1", "node-2")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder, recorder.messages.append)):
        await until_async(lambda: recorder.syncs)
        detour.cut()
        make(api_server, "node-3")
        api_server.api.delete(f"{PATH}/node-1")
        await until_async(lambda: recorder.messages)
        detour.mend()
        await until_async(lambda: recorder.names == {"node-2", "node-3"})
        await until_async(lambda: len(recorder.messages) == 2)
    assert recorder.syncs == 1  # nothing was listed anew
    assert sorted(recorder.changes) == ["node-1", "node-2", "node-3"]
    assert recorder.messages[0].startswith("Nodes: the Kubernetes API at https://127.0.0.1:")
    assert recorder.messages[1] == "Nodes: the Kubernetes API responds again"


async def test_a_server_that_has_forgotten_lists_anew(
    far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    make(api_server, "node-1", "node-2", "node-3")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder, recorder.messages.append)):
        await until_async(lambda: recorder.syncs)
        detour.cut()
        make(api_server, "node-4")
        relabel(api_server, "node-3", "r1")
        api_server.api.delete(f"{PATH}/node-1")
        # A new server knows nothing of what was before it.
        await asyncio.to_thread(restart, api_server)
        detour.mend()
        await until_async(lambda: recorder.syncs == 2)
        assert recorder.names == {"node-2", "node-3", "node-4"}
        assert recorder.lost == ["node-1"]
        assert recorder.changes.count("node-2") == 1  # it had not changed
        assert recorder.changes.count("node-3") == 2
        relabel(api_server, "node-2", "r2")
        await until_async(lambda: recorder.changes.count("node-2") == 2)


async def test_a_server_that_restarts(far_api: ApiClient, api_server: Cluster) -> None:
    make(api_server, "node-1")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder, recorder.messages.append)):
        await until_async(lambda: recorder.syncs)
        await asyncio.to_thread(restart, api_server)
        make(api_server, "node-2")
        await until_async(lambda: recorder.names == {"node-1", "node-2"})
        api_server.api.delete(f"{PATH}/node-1")
        await until_async(lambda: recorder.names == {"node-2"})
    assert recorder.changes.count("node-1") == 1


async def test_a_connection_that_falls_silent_is_made_anew(
    far_api: ApiClient, detour: Detour, api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_WATCH_TIMEOUT", 1.0)
    make(api_server, "node-1")
    recorder = NodeRecorder()
    async with running(watch_nodes(far_api, recorder, recorder.messages.append)):
        await until_async(lambda: recorder.syncs)
        detour.silence()
        make(api_server, "node-2")
        await until_async(lambda: recorder.messages)
        detour.mend()
        await until_async(lambda: recorder.names == {"node-1", "node-2"})
    assert "did not respond to GET /api/v1/nodes within 1 s" in recorder.messages[0]


async def test_a_server_that_streams_no_lists_gives_pages(
    monkeypatch: pytest.MonkeyPatch, new_cluster: NewCluster
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 2)
    with new_cluster(API, {"kube-apiserver": ["--feature-gates=WatchList=false"]}) as old:
        make(old, *(f"node-{number}" for number in range(5)))
        api = await ApiClient.connect(str(old.kubeconfig))
        recorder = NodeRecorder()
        async with running(watch_nodes(api, recorder, recorder.messages.append)):
            await until_async(lambda: recorder.syncs)
            assert recorder.names == {f"node-{number}" for number in range(5)}
            old.api.delete(f"{PATH}/node-2")
            await until_async(lambda: recorder.lost == ["node-2"])
        await api.close()
    assert recorder.messages == []


async def test_a_page_that_is_too_large_is_asked_for_in_parts(
    api: ApiClient, controlplane: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(controlplane, *(f"node-{number}" for number in range(20)))
    item = len(await api.request("GET", PATH, query={"limit": 1}))
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 3 * item)
    listed = listing.PagedList(api, PATH, {})
    assert len([item async for item in listed.items()]) == 20
    assert int(listed.version) > 0


async def test_what_cannot_be_read_stays_as_it_was(api: ApiClient, controlplane: Cluster) -> None:
    def picky(raw: msgspec.Raw) -> Node:
        decoded_node = decoded(raw)
        if decoded_node.labels.get("rack") == "wrong":
            raise msgspec.ValidationError("Expected `str`, got `int` - at `$.spec`")
        return decoded_node

    make(controlplane, "node-1", "node-2")
    recorder = NodeRecorder()
    follow: Watch[Any] = Watch(api, PATH, "Nodes", picky, recorder, recorder.messages.append)
    async with running(follow):
        await until_async(lambda: recorder.syncs)
        relabel(controlplane, "node-1", "wrong")
        relabel(controlplane, "node-2", "wrong")
        await until_async(lambda: recorder.messages)
        assert recorder.messages == [
            "Nodes: node-1 could not be read and keeps its last state: Expected `str`, got `int` - at `$.spec`"
        ]
        relabel(controlplane, "node-1", "right")
        await until_async(lambda: any(item.labels.get("rack") == "right" for item in recorder.nodes.values()))
        controlplane.api.delete(f"{PATH}/node-2")
        await until_async(lambda: recorder.lost == ["node-2"])


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_what_is_known_is_what_there_is(
    far_api: ApiClient, detour: Detour, api_server: Cluster, seed: int
) -> None:
    chance = random.Random(seed)
    recorder = NodeRecorder()
    there: set[str] = set()

    def act() -> None:
        name = f"node-{chance.randrange(8)}"
        if name not in there:
            make(api_server, name)
            there.add(name)
        elif chance.random() < 0.5:
            relabel(api_server, name, f"r{chance.randrange(1000)}")
        else:
            api_server.api.delete(f"{PATH}/{name}")
            there.discard(name)

    async with running(watch_nodes(far_api, recorder, recorder.messages.append)):
        for step in range(80):
            act()
            if chance.random() < 0.2:
                detour.cut()
            if chance.random() < 0.4:
                detour.mend()
            if step == 40:
                await asyncio.to_thread(restart, api_server)
            await asyncio.sleep(chance.random() * 0.05)
        detour.mend()
        expected = {
            (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
            for item in api_server.api.get(PATH)["items"]
        }
        await until_async(lambda: {(item.uid, item.version) for item in recorder.nodes.values()} == expected)
    assert recorder.names == there


def restart(control: Cluster) -> None:
    control.stop("kube-apiserver")
    control.start("kube-apiserver")
    control.ready()
