"""The executor of marks on real Nodes, with concurrent changes and failures."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.executor import WriteResult
from nodeguard.kube.fenced_client import NotPermittedError
from nodeguard.model.mark import EPOCH_ANNOTATION, HOLD_ANNOTATION, STATE_ANNOTATION
from nodeguard.model.node import NodeCondition, Taint
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.kube.writing import NODES, QUARANTINE, SUSPECT, desired, ours, read, writing

ROUNDS = 40


async def test_marks_are_set_and_removed(api: ApiClient, names: list[str]) -> None:
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


async def test_marks_that_a_node_has_are_not_written(api: ApiClient, names: list[str]) -> None:
    async with writing(api) as writers:
        writers.executor.set_desired(desired(await read(api, names[0]), QUARANTINE))
        await writers.idle()
        marked = writers.nodes[names[0]] = await read(api, names[0])
        for _ in range(3):
            writers.executor.set_desired(desired(marked, QUARANTINE))
        assert writers.first.pending == 0
    assert writers.results(names[0]) == [WriteResult.WRITTEN, *[WriteResult.UNCHANGED] * 3]
    assert (await read(api, names[0])).version == marked.version


@pytest.mark.parametrize(
    "undo", [{"spec": {"taints": None}}, {"metadata": {"annotations": {STATE_ANNOTATION: None}}}]
)
async def test_marks_that_another_client_removes_each_time_are_written_once_a_minute(
    api: ApiClient, names: list[str], undo: dict[str, Any]
) -> None:
    async with writing(api) as writers:

        async def mark_and_remove() -> None:
            before = len(writers.outcomes)
            gpu_node = writers.nodes[names[0]] = await read(api, names[0])
            writers.executor.set_desired(desired(gpu_node, QUARANTINE))
            await writers.until(lambda: len(writers.outcomes) > before)
            await api.request("PATCH", f"{NODES}/{names[0]}", body=undo, content_type=MERGE_PATCH)

        for _ in range(8):
            await mark_and_remove()
        written = writers.results(names[0]).count(WriteResult.WRITTEN)
        assert written == 6
        failed = writers.outcomes[-1]
        assert failed.result == WriteResult.FAILED
        assert failed.error is not None
        assert not failed.error.is_refused
        assert "another client or an admission webhook changes the marks of gpu-0 each time" in failed.reason
        # Other marks, and other Nodes, are written at once.
        writers.executor.set_desired(desired(await read(api, names[0]), QUARANTINE, SUSPECT))
        writers.executor.set_desired(desired(await read(api, names[1]), QUARANTINE))
        await writers.idle()
    assert ours(await read(api, names[0])) == {QUARANTINE, SUSPECT}
    assert ours(await read(api, names[1])) == {QUARANTINE}


async def test_only_the_latest_desired_marks_are_written(api: ApiClient, names: list[str]) -> None:
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
        # The watch has not delivered the write yet.
        writers.nodes[gpu_node.name] = gpu_node
        writers.executor.set_desired(desired(gpu_node))
        await writers.idle()
    assert ours(await read(api, gpu_node.name)) == set()


async def test_a_recreated_node_is_another_node(
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


async def test_the_writes_of_an_earlier_leader_wait_for_its_lease(api: ApiClient, names: list[str]) -> None:
    gpu_node, two, _ = [await read(api, name) for name in names]
    async with writing(api, epoch=1) as old, writing(api, epoch=2) as new:
        old.executor.set_desired(desired(gpu_node, QUARANTINE))
        await old.idle()
        new.executor.set_desired(desired(gpu_node, SUSPECT))
        await new.idle()
        old.executor.set_desired(desired(gpu_node, QUARANTINE, SUSPECT))
        await old.until(lambda: not old.client.can_write())
        old.executor.set_desired(desired(two, QUARANTINE))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert ours(await read(api, gpu_node.name)) == {SUSPECT}
        assert ours(await read(api, two.name)) == set()
        assert old.results(gpu_node.name) == [WriteResult.WRITTEN]
        # The lease is still its own: a kubelet wrote the epoch.
        old.renewals += 1
        await old.idle()
        assert ours(await read(api, two.name)) == {QUARANTINE}
    assert f"object=Node {gpu_node.name} epoch=2 own_epoch=1" in old.messages[0]


async def test_no_write_begins_shortly_before_the_lease_ends(api: ApiClient, names: list[str]) -> None:
    gpu_node = await read(api, names[0])
    async with writing(api) as writers:
        writers.left = 0.01
        writers.executor.set_desired(desired(gpu_node, QUARANTINE))
        await asyncio.sleep(0.05)
        assert writers.outcomes == []
        writers.left = 9.0
        await writers.idle()
    assert writers.results(gpu_node.name) == [WriteResult.WRITTEN]


async def test_an_invalid_write_is_logged_once_and_blocks_no_other(api: ApiClient, names: list[str]) -> None:
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
    assert recovery == "INFO all writes succeed again"


async def test_taints_without_a_record_are_written_only_as_marks_are(
    api: ApiClient, names: list[str]
) -> None:
    too_long = ApiError(422, "Invalid", "too long", fields=("metadata.annotations",))
    gpu_node = await read(api, names[0])
    async with writing(api) as writers:
        theirs = Taint("nodeguard.dev/drill", "NoExecute", "")
        # An operator has removed this taint since the plan.
        await writers.executor._handle_error(desired(gpu_node, QUARANTINE, theirs), too_long)
        [outcome] = writers.outcomes
        assert (outcome.result, outcome.is_record_refused) == (WriteResult.REFUSED, False)
        assert "nodeguard.dev/drill" in outcome.reason
        epoch = {"metadata": {"annotations": {EPOCH_ANNOTATION: "99"}}}
        await api.request("PATCH", f"{NODES}/{names[0]}", body=epoch, content_type=MERGE_PATCH)
        with pytest.raises(NotPermittedError):
            await writers.executor._handle_error(desired(gpu_node, QUARANTINE), too_long)
    assert ours(await read(api, names[0])) == set()


async def test_a_node_that_is_held_meanwhile_is_not_marked(api: ApiClient, names: list[str]) -> None:
    async with writing(api) as writers:
        first, second, _ = [await read(api, name) for name in names]
        writers.executor.set_desired(desired(first, QUARANTINE))
        await writers.idle()
        for gpu_node in (first, second):
            # For the second Node the watch has only an old version.
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


async def test_a_node_without_room_for_the_record_gets_its_taints(api: ApiClient, names: list[str]) -> None:
    key = "example.com/filling"
    filling = {"metadata": {"annotations": {key: "x" * (256 * 1024 - len(key) - 60)}}}
    await api.request("PATCH", f"{NODES}/{names[0]}", body=filling, content_type=MERGE_PATCH)
    gpu_node = await read(api, names[0])
    condition = NodeCondition("False", "GpuLost", "GPU 3 is lost")
    async with writing(api) as writers:
        wanted = desired(gpu_node, QUARANTINE, state='{"causes":[]}', cordon=True, condition=condition)
        writers.executor.set_desired(wanted)
        await writers.until(lambda: len(writers.outcomes) > 2)
        outcome = writers.outcomes[0]
        assert (outcome.result, outcome.is_record_refused) == (WriteResult.FAILED, True)
        assert "metadata.annotations: Too long" in outcome.reason
        assert outcome.node is not None
        assert ours(outcome.node) == {QUARANTINE}
        await writers.until(lambda: not writers.later.pending)
        marked = await read(api, names[0])
        # Without a record, the cordon would count as an operator's.
        assert (ours(marked), marked.annotations, marked.unschedulable) == ({QUARANTINE}, {}, False)
        assert marked.condition == condition

        empty = {"metadata": {"annotations": {key: None}}}
        await api.request("PATCH", f"{NODES}/{names[0]}", body=empty, content_type=MERGE_PATCH)
        await writers.idle()
        assert writers.outcomes[-1].result == WriteResult.WRITTEN
        marked = await read(api, names[0])
        assert (STATE_ANNOTATION in marked.annotations, marked.unschedulable) == (True, True)


async def update_node(api: ApiClient, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read, modify and write until there is no conflict, as kubectl and controllers do."""
    while True:
        current = json.loads(await api.request("GET", f"{NODES}/{name}"))
        patch = change(current)
        patch.setdefault("metadata", {})["resourceVersion"] = current["metadata"]["resourceVersion"]
        try:
            await api.request("PATCH", f"{NODES}/{name}", body=patch, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return


async def change_as_others(api: ApiClient, name: str, number: int) -> None:
    """Change a Node as operators and controllers do; after the last round it is cordoned and has two taints."""

    def add(current: dict[str, Any]) -> dict[str, Any]:
        rest = [taint for taint in current["spec"].get("taints", []) if taint["key"] != "foreign"]
        mine = {
            "key": "foreign",
            "effect": "NoSchedule",
            "value": str(number),
            "timeAdded": "2026-01-01T00:00:00Z",
        }
        return {"spec": {"taints": [*rest, mine]}}

    await update_node(api, name, add)
    await update_node(api, name, lambda _: {"metadata": {"labels": {"round": str(number)}}})
    await api.request(
        "PATCH",
        f"{NODES}/{name}",
        body={"spec": {"unschedulable": number % 2 == 0}},
        content_type=MERGE_PATCH,
    )


async def test_concurrent_changes_of_others_are_not_lost(api: ApiClient, names: list[str]) -> None:
    chance = random.Random(7)
    async with writing(api) as writers:
        for number in range(ROUNDS):
            wanted = [chance.choice([(), (QUARANTINE,), (SUSPECT,), (QUARANTINE, SUSPECT)]) for _ in names]
            together = [change_as_others(api, name, number) for name in names]

            async def mark(
                wanted: list[tuple[Taint, ...]] = wanted, state: str = f'{{"round":{number}}}'
            ) -> None:
                for name, taints in zip(names, wanted, strict=True):
                    # The version of the watch is sometimes some rounds old.
                    if name not in writers.nodes or chance.random() < 0.3:
                        writers.nodes[name] = await read(api, name)
                    writers.executor.set_desired(desired(writers.nodes[name], *taints, state=state))
                    await asyncio.sleep(chance.random() * 0.01)

            await asyncio.gather(mark(), *together)
            await writers.idle()
            for name, taints in zip(names, wanted, strict=True):
                after = await read(api, name)
                assert ours(after) == set(taints)
                foreign = [taint for taint in after.taints if taint.key == "foreign"]
                assert foreign == [Taint("foreign", "NoSchedule", str(number), "2026-01-01T00:00:00Z")]
                assert after.labels["round"] == str(number)
                assert after.unschedulable == (number % 2 == 0)
    results = {outcome.result for outcome in writers.outcomes}
    assert results - {WriteResult.UNCHANGED} == {WriteResult.WRITTEN}
    assert writers.messages == []
