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
from tests.kube.following import Told, running
from tests.waiting import until_async


def make(control: Cluster, *names: str) -> None:
    for name in names:
        control.api.post("/api/v1/nodes", node(name))


def relabel(control: Cluster, name: str, rack: str) -> None:
    control.api.patch(f"{PATH}/{name}", {"metadata": {"labels": {"rack": rack}}})


async def test_all_there_is_and_then_each_change(api: ApiClient, controlplane: Cluster) -> None:
    make(controlplane, "node-1", "node-2")
    told = Told()
    follow = watch_nodes(api, told, told.said.append)
    async with running(follow):
        await until_async(lambda: told.syncs)
        assert told.names == {"node-1", "node-2"}
        assert follow.is_synced
        assert follow.last_received is not None
        make(controlplane, "node-3")
        relabel(controlplane, "node-1", "r1")
        controlplane.api.delete(f"{PATH}/node-2")
        await until_async(lambda: told.names == {"node-1", "node-3"})
        await until_async(lambda: any(one.labels.get("rack") == "r1" for one in told.nodes.values()))
    assert told.lost == ["node-2"]
    assert (told.syncs, told.said) == (1, [])


async def test_a_connection_that_breaks_is_taken_up_where_it_was(
    far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    make(api_server, "node-1", "node-2")
    told = Told()
    async with running(watch_nodes(far_api, told, told.said.append)):
        await until_async(lambda: told.syncs)
        detour.cut()
        make(api_server, "node-3")
        api_server.api.delete(f"{PATH}/node-1")
        await until_async(lambda: told.said)
        detour.mend()
        await until_async(lambda: told.names == {"node-2", "node-3"})
        await until_async(lambda: len(told.said) == 2)
    assert told.syncs == 1  # nothing was listed anew
    assert sorted(told.changes) == ["node-1", "node-2", "node-3"]
    assert told.said[0].startswith("Nodes: the Kubernetes API at https://127.0.0.1:")
    assert told.said[1] == "Nodes: the Kubernetes API answers again"


async def test_a_server_that_has_forgotten_lists_anew(
    far_api: ApiClient, detour: Detour, api_server: Cluster
) -> None:
    make(api_server, "node-1", "node-2", "node-3")
    told = Told()
    async with running(watch_nodes(far_api, told, told.said.append)):
        await until_async(lambda: told.syncs)
        detour.cut()
        make(api_server, "node-4")
        relabel(api_server, "node-3", "r1")
        api_server.api.delete(f"{PATH}/node-1")
        # A new server knows nothing of what was before it.
        await asyncio.to_thread(restart, api_server)
        detour.mend()
        await until_async(lambda: told.syncs == 2)
        assert told.names == {"node-2", "node-3", "node-4"}
        assert told.lost == ["node-1"]
        assert told.changes.count("node-2") == 1  # it had not changed
        assert told.changes.count("node-3") == 2
        relabel(api_server, "node-2", "r2")
        await until_async(lambda: told.changes.count("node-2") == 2)


async def test_a_server_that_restarts(far_api: ApiClient, api_server: Cluster) -> None:
    make(api_server, "node-1")
    told = Told()
    async with running(watch_nodes(far_api, told, told.said.append)):
        await until_async(lambda: told.syncs)
        await asyncio.to_thread(restart, api_server)
        make(api_server, "node-2")
        await until_async(lambda: told.names == {"node-1", "node-2"})
        api_server.api.delete(f"{PATH}/node-1")
        await until_async(lambda: told.names == {"node-2"})
    assert told.changes.count("node-1") == 1


async def test_a_connection_that_falls_silent_is_made_anew(
    far_api: ApiClient, detour: Detour, api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_QUIET", 1.0)
    make(api_server, "node-1")
    told = Told()
    async with running(watch_nodes(far_api, told, told.said.append)):
        await until_async(lambda: told.syncs)
        detour.silence()
        make(api_server, "node-2")
        await until_async(lambda: told.said)
        detour.mend()
        await until_async(lambda: told.names == {"node-1", "node-2"})
    assert "said nothing to GET /api/v1/nodes within 1 s" in told.said[0]


async def test_a_server_that_streams_no_lists_gives_pages(
    monkeypatch: pytest.MonkeyPatch, new_cluster: NewCluster
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 2)
    with new_cluster(API, {"kube-apiserver": ["--feature-gates=WatchList=false"]}) as old:
        make(old, *(f"node-{number}" for number in range(5)))
        api = await ApiClient.connect(str(old.kubeconfig))
        told = Told()
        async with running(watch_nodes(api, told, told.said.append)):
            await until_async(lambda: told.syncs)
            assert told.names == {f"node-{number}" for number in range(5)}
            old.api.delete(f"{PATH}/node-2")
            await until_async(lambda: told.lost == ["node-2"])
        await api.close()
    assert told.said == []


async def test_a_page_that_is_too_large_is_asked_for_in_parts(
    api: ApiClient, controlplane: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(controlplane, *(f"node-{number}" for number in range(20)))
    one = len(await api.request("GET", PATH, query={"limit": 1}))
    monkeypatch.setattr(client, "MOST", 3 * one)
    listed = listing.PagedList(api, PATH, {})
    assert len([item async for item in listed.items()]) == 20
    assert int(listed.version) > 0


async def test_what_cannot_be_read_stays_as_it_was(api: ApiClient, controlplane: Cluster) -> None:
    def picky(raw: msgspec.Raw) -> Node:
        made = decoded(raw)
        if made.labels.get("rack") == "wrong":
            raise msgspec.ValidationError("Expected `str`, got `int` - at `$.spec`")
        return made

    make(controlplane, "node-1", "node-2")
    told = Told()
    follow: Watch[Any] = Watch(api, PATH, "Nodes", picky, told, told.said.append)
    async with running(follow):
        await until_async(lambda: told.syncs)
        relabel(controlplane, "node-1", "wrong")
        relabel(controlplane, "node-2", "wrong")
        await until_async(lambda: told.said)
        assert told.said == [
            "Nodes: node-1 cannot be read and stays as it was: Expected `str`, got `int` - at `$.spec`"
        ]
        relabel(controlplane, "node-1", "right")
        await until_async(lambda: any(one.labels.get("rack") == "right" for one in told.nodes.values()))
        controlplane.api.delete(f"{PATH}/node-2")
        await until_async(lambda: told.lost == ["node-2"])


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_what_is_known_is_what_there_is(
    far_api: ApiClient, detour: Detour, api_server: Cluster, seed: int
) -> None:
    chance = random.Random(seed)
    told = Told()
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

    async with running(watch_nodes(far_api, told, told.said.append)):
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
        found = {
            (one["metadata"]["uid"], one["metadata"]["resourceVersion"])
            for one in api_server.api.get(PATH)["items"]
        }
        await until_async(lambda: {(one.uid, one.version) for one in told.nodes.values()} == found)
    assert told.names == there


def restart(control: Cluster) -> None:
    control.stop("kube-apiserver")
    control.start("kube-apiserver")
    control.ready()
