"""The executor of marks on real Nodes: the conditions of Nodes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nodeguard.kube.client import STRATEGIC_MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.executor import WriteResult
from nodeguard.kube.node_patch import HEALTHY_CONDITION
from nodeguard.kube.unmark import unmark_node
from nodeguard.model.node import NodeCondition
from tests.kube.writing import NODES, QUARANTINE, desired, read, writing
from tests.waiting import PATIENCE


async def test_a_condition_that_another_client_changes_each_time_is_written_once_a_minute(
    api: ApiClient, names: list[str]
) -> None:
    wanted = NodeCondition("False", "GpuLost", "GPU 3 is lost")
    other = {"status": {"conditions": [{"type": HEALTHY_CONDITION, "status": "True", "reason": "Mine"}]}}
    written = 0
    async with writing(api) as writers, asyncio.timeout(PATIENCE):
        while not any("changes the condition of gpu-0 each time" in line for line in writers.messages):
            gpu_node = writers.nodes[names[0]] = await read(api, names[0])
            if gpu_node.condition == wanted:
                written += 1
                status = f"{NODES}/{names[0]}/status"
                await api.request("PATCH", status, body=other, content_type=STRATEGIC_MERGE_PATCH)
            else:
                writers.executor.set_desired(desired(gpu_node, condition=wanted))
            await asyncio.sleep(0.01)
    assert written == 6


async def test_a_held_node_gets_no_condition_and_its_marks_count_as_written(
    api: ApiClient, names: list[str]
) -> None:
    unhealthy = NodeCondition("False", "GpuFellOff", "GPU 0000:3b:00 fell off the bus")
    name = names[0]
    async with writing(api) as writers:
        writers.executor.set_desired(desired(await read(api, name), QUARANTINE, state="{}"))
        await writers.idle()
        # A plan that changes the condition only, before an operator removes the marks and holds the Node.
        with_condition = desired(await read(api, name), QUARANTINE, state="{}", condition=unhealthy)
        writers.may = False
        writers.executor.set_desired(with_condition)
        assert writers.results(name) == [WriteResult.WRITTEN, WriteResult.UNCHANGED]
        await unmark_node(api, name, [], "under repair")
        writers.nodes[name] = await read(api, name)
        writers.may = True
        await writers.idle()
    assert (await read(api, name)).condition is None


@pytest.mark.parametrize("status", [404, 409])
async def test_a_condition_is_written_after_a_conflict(
    status: int, api: ApiClient, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unhealthy = NodeCondition("False", "GpuFellOff", "GPU 0000:3b:00 fell off the bus")
    async with writing(api) as writers:
        write, errors = writers.client.write, [ApiError(status, "Conflict", "changed")] * 2

        async def write_with_errors(method: str, path: str, *content: Any) -> bytes:
            if path.endswith("/status") and errors:
                raise errors.pop()
            return await write(method, path, *content)

        monkeypatch.setattr(writers.client, "write", write_with_errors)
        writers.executor.set_desired(desired(await read(api, names[0]), QUARANTINE, condition=unhealthy))
        await writers.idle()
        assert (await read(api, names[0])).condition == unhealthy


async def test_conditions_follow_the_marks(api: ApiClient, names: list[str]) -> None:
    unhealthy = NodeCondition("False", "GpuFellOff", "GPU 0000:3b:00 fell off the bus")
    async with writing(api) as writers:
        for name in names:
            writers.executor.set_desired(desired(await read(api, name), QUARANTINE, condition=unhealthy))
        await writers.idle()
        marked = await read(api, names[0])
        assert marked.condition == unhealthy
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

        healthy = NodeCondition("True", "Healthy", "no active finding")
        writers.executor.set_desired(desired(marked, condition=healthy))
        await writers.idle()
        assert (await read(api, names[0])).condition == healthy

        writers.executor.set_desired(desired(await read(api, names[0]), condition=NodeCondition("", "")))
        await writers.idle()
        conditions = json.loads(await api.request("GET", f"{NODES}/{names[0]}"))["status"]["conditions"]
        assert [condition["type"] for condition in conditions] == ["Ready"]
        assert (await read(api, names[0])).condition is None
