"""Marks are written on real Nodes, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.executor import WriteResult
from nodeguard.model.mark import EPOCH_ANNOTATION, HOLD_ANNOTATION, STATE_ANNOTATION
from nodeguard.model.node import Node, NodeCondition, Taint
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.controlplane.credentials import write_kubeconfig
from tests.controlplane.objects import node
from tests.kube.writing import QUARANTINE, SUSPECT, Writing, desired, read, writing
from tests.waiting import PATIENCE

NODES = "/api/v1/nodes"
ROUNDS = 150


@pytest.fixture
def names(controlplane: Cluster) -> list[str]:
    """Nodes that the controllers are done with."""
    writers = [f"gpu-{number}" for number in range(3)]
    for name in writers:
        controlplane.api.post(NODES, node(name))
    controlplane.until(
        lambda: not any(item["spec"].get("taints") for item in controlplane.api.get(NODES)["items"]),
        "kube-controller-manager",
    )
    return writers


def ours(found: Node) -> set[Taint]:
    return {taint for taint in found.taints if taint.key.startswith("nodeguard.dev/")}


async def test_marks_come_and_go(api: ApiClient, names: list[str]) -> None:
    before = await read(api, names[0])
    async with writing(api, epoch=7) as writers:
        writers.executor.set_desired(desired(before, QUARANTINE, state='{"cordoned":true}', cordon=True))
        await writers.idle()
        marked = await read(api, names[0])
        assert ours(marked) == {QUARANTINE}
        assert marked.annotations == {STATE_ANNOTATION: '{"cordoned":true}', EPOCH_ANNOTATION: "7"}
        assert marked.unschedulable
        (outcome,) = writers.outcomes
        assert (outcome.result, outcome.node and ours(outcome.node)) == (WriteResult.WRITTEN, {QUARANTINE})

        writers.executor.set_desired(desired(before, cordon=False))
        await writers.idle()
    after = await read(api, names[0])
    assert (ours(after), after.annotations, after.unschedulable) == (set(), {}, False)


async def test_what_is_there_already_is_not_written(api: ApiClient, names: list[str]) -> None:
    async with writing(api) as writers:
        writers.executor.set_desired(desired(await read(api, names[0]), QUARANTINE))
        await writers.idle()
        marked = writers.nodes[names[0]] = await read(api, names[0])
        for _ in range(3):
            writers.executor.set_desired(desired(marked, QUARANTINE))
        assert writers.first.pending == 0
    assert len(writers.outcomes) == 1
    assert (await read(api, names[0])).version == marked.version


async def test_the_latest_counts(api: ApiClient, names: list[str]) -> None:
    gpu_node = await read(api, names[0])
    async with writing(api) as writers:
        writers.may = False
        for taints in ((QUARANTINE,), (), (QUARANTINE, SUSPECT), (SUSPECT,)):
            writers.executor.set_desired(desired(gpu_node, *taints))
        await asyncio.sleep(0)
        assert writers.outcomes == []
        writers.may = True
        await writers.idle()
        assert writers.results(gpu_node.name) == [WriteResult.WRITTEN]
        # The watch has not told of it yet.
        writers.nodes[gpu_node.name] = gpu_node
        writers.executor.set_desired(desired(gpu_node))
        await writers.idle()
    assert ours(await read(api, gpu_node.name)) == set()


async def test_a_node_of_the_same_name_is_another(
    api: ApiClient, controlplane: Cluster, names: list[str]
) -> None:
    gpu_node = await read(api, names[0])
    await api.request("DELETE", f"{NODES}/{gpu_node.name}")
    async with writing(api) as writers:
        writers.executor.set_desired(desired(gpu_node, QUARANTINE))
        await writers.idle()
        controlplane.api.post(NODES, node(gpu_node.name))
        writers.executor.set_desired(desired(gpu_node, QUARANTINE, SUSPECT))
        await writers.idle()
        writers.nodes[gpu_node.name] = gpu_node
        writers.executor.set_desired(desired(gpu_node, SUSPECT))
        await writers.idle()
    assert writers.results(gpu_node.name) == [WriteResult.GONE] * 3
    assert ours(await read(api, gpu_node.name)) == set()
    assert writers.messages == []


async def test_who_leads_later_ends_the_earlier(api: ApiClient, names: list[str]) -> None:
    gpu_node, two, _ = [await read(api, name) for name in names]
    async with writing(api, epoch=1) as old, writing(api, epoch=2) as new:
        old.executor.set_desired(desired(gpu_node, QUARANTINE))
        await old.idle()
        new.executor.set_desired(desired(gpu_node, SUSPECT))
        await new.idle()
        old.executor.set_desired(desired(gpu_node, QUARANTINE, SUSPECT))
        await old.until(lambda: old.client.is_fenced)
        old.executor.set_desired(desired(two, QUARANTINE))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert ours(await read(api, gpu_node.name)) == {SUSPECT}
        assert ours(await read(api, two.name)) == set()
    assert old.results(gpu_node.name) == [WriteResult.WRITTEN, WriteResult.FENCED]
    assert len(old.messages) == 1
    assert f"object=Node {gpu_node.name} epoch=2 own_epoch=1" in old.messages[0]


async def test_nothing_is_begun_that_outlasts_the_lease(api: ApiClient, names: list[str]) -> None:
    gpu_node = await read(api, names[0])
    async with writing(api) as writers:
        writers.left = 0.01
        writers.executor.set_desired(desired(gpu_node, QUARANTINE))
        await asyncio.sleep(0.05)
        assert writers.outcomes == []
        writers.left = 9.0
        await writers.idle()
    assert writers.results(gpu_node.name) == [WriteResult.WRITTEN]


async def test_what_the_server_does_not_take_is_told_once_and_others_go_on(
    api: ApiClient, names: list[str]
) -> None:
    gpu_node, two, _ = [await read(api, name) for name in names]
    wrong = Taint(QUARANTINE.key, "NoSchedule", "x" * 64)
    async with writing(api) as writers:
        writers.executor.set_desired(desired(gpu_node, wrong))
        await writers.until(lambda: len(writers.results(gpu_node.name)) >= 2)
        writers.executor.set_desired(desired(two, QUARANTINE))
        await writers.until(lambda: writers.results(two.name))
        writers.executor.set_desired(desired(gpu_node, Taint(SUSPECT.key, "NoExecute", "x")))
        await writers.until(lambda: WriteResult.REFUSED in writers.results(gpu_node.name))
        writers.executor.set_desired(desired(gpu_node, QUARANTINE))
        await writers.idle()
    assert set(writers.results(two.name)) == {WriteResult.WRITTEN}
    assert ours(await read(api, gpu_node.name)) == {QUARANTINE}
    first, recovery = writers.messages
    assert "must be no more than 63" in first
    assert recovery == "INFO no write fails any more"


async def test_conditions_follow_the_marks(api: ApiClient, names: list[str]) -> None:
    unwell = NodeCondition("False", "GpuFellOff", "GPU 0000:3b:00 fell off the bus")
    async with writing(api) as writers:
        for name in names:
            writers.executor.set_desired(desired(await read(api, name), QUARANTINE, condition=unwell))
        await writers.idle()
        marked = await read(api, names[0])
        assert marked.condition == unwell
        raw = json.loads(await api.request("GET", f"{NODES}/{names[0]}"))
        assert {condition["type"] for condition in raw["status"]["conditions"]} == {
            "Ready",
            "NodeguardHealthy",
        }
        (first,) = [
            condition for condition in raw["status"]["conditions"] if condition["type"] == "NodeguardHealthy"
        ]
        assert first["lastTransitionTime"] == first["lastHeartbeatTime"]

        reworded = NodeCondition("False", "GpuFellOff", "other words")
        writers.executor.set_desired(desired(marked, QUARANTINE, condition=reworded))
        await writers.idle()
        assert (await read(api, names[0])).version == marked.version

        well = NodeCondition("True", "Healthy", "no fault is known")
        writers.executor.set_desired(desired(marked, condition=well))
        await writers.idle()
        assert (await read(api, names[0])).condition == well

        writers.executor.set_desired(desired(await read(api, names[0]), condition=NodeCondition("", "")))
        await writers.idle()
        left = json.loads(await api.request("GET", f"{NODES}/{names[0]}"))["status"]["conditions"]
        assert [condition["type"] for condition in left] == ["Ready"]
        assert (await read(api, names[0])).condition is None


async def test_who_is_held_meanwhile_is_left_as_it_is(api: ApiClient, names: list[str]) -> None:
    async with writing(api) as writers:
        first, second, _ = [await read(api, name) for name in names]
        writers.executor.set_desired(desired(first, QUARANTINE))
        await writers.idle()
        for gpu_node in (first, second):
            # What a watch told before is all that is known of the second.
            writers.nodes[gpu_node.name] = gpu_node if gpu_node is second else await read(api, gpu_node.name)
            body = {"metadata": {"annotations": {HOLD_ANNOTATION: "mine"}}}
            await api.request("PATCH", f"{NODES}/{gpu_node.name}", body=body, content_type=MERGE_PATCH)
        writers.executor.set_desired(desired(second, QUARANTINE))
        writers.executor.set_desired(desired(first, SUSPECT))
        await writers.idle()
        assert [writers.results(gpu_node.name)[-1] for gpu_node in (first, second)] == [
            WriteResult.REFUSED,
            WriteResult.REFUSED,
        ]
        assert ours(await read(api, first.name)) == {QUARANTINE}
        assert ours(await read(api, second.name)) == set()
        assert all(
            HOLD_ANNOTATION in outcome.node.annotations for outcome in writers.outcomes[-2:] if outcome.node
        )
        writers.executor.set_desired(desired(first))
        await writers.idle()
        assert ours(await read(api, first.name)) == set()


Act = Callable[[ApiClient, str, int], Awaitable[Any]]


async def changed(api: ApiClient, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read, modify, write, until it was not in anybody's way: as kubectl and controllers do."""
    while True:
        found = json.loads(await api.request("GET", f"{NODES}/{name}"))
        patch = change(found)
        patch.setdefault("metadata", {})["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            await api.request("PATCH", f"{NODES}/{name}", body=patch, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return


async def others(api: ApiClient, name: str, number: int) -> None:
    """What people and controllers do to a Node; after the last round it is cordoned and has two taints."""

    def add(found: dict[str, Any]) -> dict[str, Any]:
        rest = [taint for taint in found["spec"].get("taints", []) if taint["key"] != "foreign"]
        mine = {
            "key": "foreign",
            "effect": "NoSchedule",
            "value": str(number),
            "timeAdded": "2026-01-01T00:00:00Z",
        }
        return {"spec": {"taints": [*rest, mine]}}

    await changed(api, name, add)
    await changed(api, name, lambda _: {"metadata": {"labels": {"round": str(number)}}})
    await api.request(
        "PATCH",
        f"{NODES}/{name}",
        body={"spec": {"unschedulable": number % 2 == 0}},
        content_type=MERGE_PATCH,
    )


async def test_nothing_of_others_is_lost(api: ApiClient, names: list[str]) -> None:
    lot = random.Random(7)
    async with writing(api) as writers:
        for number in range(ROUNDS):
            wanted = [lot.choice([(), (QUARANTINE,), (SUSPECT,), (QUARANTINE, SUSPECT)]) for _ in names]
            together = [others(api, name, number) for name in names]

            async def mark(
                wanted: list[tuple[Taint, ...]] = wanted, state: str = f'{{"round":{number}}}'
            ) -> None:
                for name, taints in zip(names, wanted, strict=True):
                    # What the watch knows is some rounds old, at times.
                    if name not in writers.nodes or lot.random() < 0.3:
                        writers.nodes[name] = await read(api, name)
                    writers.executor.set_desired(desired(writers.nodes[name], *taints, state=state))
                    await asyncio.sleep(lot.random() * 0.01)

            await asyncio.gather(mark(), *together)
            await writers.idle()
            for name, taints in zip(names, wanted, strict=True):
                found = await read(api, name)
                assert ours(found) == set(taints)
                theirs = [taint for taint in found.taints if taint.key == "foreign"]
                assert theirs == [Taint("foreign", "NoSchedule", str(number), "2026-01-01T00:00:00Z")]
                assert found.labels["round"] == str(number)
                assert found.unschedulable == (number % 2 == 0)
    assert {outcome.result for outcome in writers.outcomes} == {WriteResult.WRITTEN}
    assert writers.messages == []


async def test_a_server_that_goes_away_and_comes_back_gets_it_all(new_cluster: NewCluster) -> None:
    with new_cluster(API) as alone:
        names = [f"gpu-{number}" for number in range(40)]
        for name in names:
            alone.api.post(NODES, node(name))
        api = await ApiClient.connect(str(alone.kubeconfig))
        try:
            async with writing(api, rate=200.0) as writers:
                await marked_across_a_restart(alone, api, writers, names)
                assert [ours(await read(api, name)) for name in names] == [{QUARANTINE}] * 40
        finally:
            await api.close()


async def marked_across_a_restart(alone: Cluster, api: ApiClient, writers: Writing, names: list[str]) -> None:
    for name in names:
        writers.executor.set_desired(desired(await read(api, name), QUARANTINE))
    await writers.until(lambda: len(writers.outcomes) > 5)
    alone.stop("kube-apiserver")
    await writers.until(lambda: writers.messages)
    alone.start("kube-apiserver")
    await asyncio.to_thread(alone.ready)
    await writers.idle()
    for name in names:
        assert writers.results(name)[-1] is WriteResult.WRITTEN
    assert sum("could not be reached" in message for message in writers.messages) <= len(names)
    assert writers.messages[-1] == "INFO no write fails any more"


async def test_a_server_that_is_asked_too_much_is_given_the_time_it_wants(
    tmp_path: Path, new_cluster: NewCluster
) -> None:
    # One write at a time for who is no administrator, and 429 with Retry-After for all beyond.
    narrow = ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1"]
    with new_cluster(API, {"kube-apiserver": narrow}) as alone:
        names = [f"gpu-{number}" for number in range(20)]
        for name in names:
            alone.api.post(NODES, node(name))
        api = await ApiClient.connect(str(commoner(alone, tmp_path)))
        try:
            async with writing(api) as writers:
                found = [await read(api, name) for name in names]
                wanted = [QUARANTINE]
                async with asyncio.timeout(PATIENCE):
                    while not writers.messages:
                        for gpu_node in found:
                            writers.executor.set_desired(desired(gpu_node, *wanted))
                        await writers.idle()
                        wanted = [SUSPECT] if wanted == [QUARANTINE] else [QUARANTINE]
                for name in names:
                    assert ours(await read(api, name)) == {QUARANTINE, SUSPECT} - set(wanted)
        finally:
            await api.close()
    first, *rest = writers.messages
    assert "the Kubernetes API returned 429" in first
    assert rest[-1] == "INFO no write fails any more"


def commoner(alone: Cluster, directory: Path) -> Path:
    """A kubeconfig of who may do all, as an aggregator's service account, and has no privilege beyond."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    alone.api.post(accounts, {"metadata": {"name": "commoner"}})
    alone.api.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "commoner"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "commoner", "namespace": "default"}],
        },
    )
    token = alone.api.post(f"{accounts}/commoner/token", {"spec": {}})["status"]["token"]
    path = directory / "kubeconfig"
    write_kubeconfig(path, alone.url, alone.ca, token)
    return path
