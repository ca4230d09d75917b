"""The conditions of drained Nodes on a real API server, with another program that sets the same ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nodeguard.kube.client import STRATEGIC_MERGE_PATCH, ApiClient
from nodeguard.kube.drain_condition_writer import DrainConditionWriter
from nodeguard.model.eviction import NodeDrain
from nodeguard.model.node import Node
from tests.kube.writing import NODES, Writing, read, writing

Conditions = dict[str, tuple[str, str]]

DRAINING: Conditions = {"DrainInProgress": ("True", "NodeguardDraining")}
DRAINED: Conditions = {"Drained": ("True", "NodeguardDrained")}


class Watched:
    """A writer of a new leader, and the Node as its watch has it."""

    def __init__(self, api: ApiClient, writers: Writing, node: Node) -> None:
        self.api, self.writers = api, writers
        self.name, self.uid = node.name, node.uid
        self.observed = {node.name: node}
        self.is_enabled = True
        self.writer = self.lead()

    def lead(self) -> DrainConditionWriter:
        """Begin the term of a new leader."""
        self.writer = DrainConditionWriter(
            self.writers.client,
            self.writers.later,
            all_nodes=self.observed.values,
            observed_node=self.observed.get,
            is_enabled=lambda: self.is_enabled,
        )
        return self.writer

    def drain(self, left: int | None, *, is_done: bool = False) -> NodeDrain:
        return NodeDrain(self.uid, self.name, 8, left, is_done)

    async def show(self, *drains: NodeDrain) -> Conditions:
        """Show some drains; return the conditions of drains that the Node has then."""
        self.writer.show(drains)
        await self.writers.idle()
        return await self.conditions()

    async def conditions(self) -> Conditions:
        return {
            item["type"]: (item["status"], item["reason"])
            for item in (await self.stored())["status"]["conditions"]
            if item["type"] in {"DrainInProgress", "Drained"}
        }

    async def stored(self) -> Any:
        return json.loads(await self.api.request("GET", f"{NODES}/{self.name}"))

    async def observe(self) -> None:
        """Let the watch deliver the Node."""
        self.observed[self.name] = await read(self.api, self.name)

    async def set_by_another(self, kind: str, status: str) -> None:
        body = {"status": {"conditions": [{"type": kind, "status": status, "reason": "KubectlDrain"}]}}
        path = f"{NODES}/{self.name}/status"
        await self.api.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)


@asynccontextmanager
async def watched(api: ApiClient, names: list[str]) -> AsyncIterator[Watched]:
    async with writing(api) as writers:
        yield Watched(api, writers, await read(api, names[0]))


async def test_a_node_shows_its_drain_until_it_is_released(api: ApiClient, names: list[str]) -> None:
    async with watched(api, names) as node:
        assert await node.show(node.drain(8)) == DRAINING
        [message] = [
            item["message"]
            for item in (await node.stored())["status"]["conditions"]
            if item["type"] == "DrainInProgress"
        ]
        assert message.startswith("8 of 8 pods remain: nodeguard evicts those that use GPUs")
        assert await node.show(node.drain(3)) == DRAINING
        assert await node.show(node.drain(0, is_done=True)) == DRAINED
        await node.observe()
        assert await node.show() == {}


async def test_nothing_is_written_that_the_node_shows_already(api: ApiClient, names: list[str]) -> None:
    async with watched(api, names) as node:
        await node.show(node.drain(8))
        version = (await node.stored())["metadata"]["resourceVersion"]
        # The watch is late, then in time; a new leader has not read the pods yet.
        await node.show(node.drain(8))
        await node.observe()
        await node.show(node.drain(8))
        node.lead()
        await node.show(node.drain(None))
        assert (await node.stored())["metadata"]["resourceVersion"] == version


async def test_a_new_leader_removes_what_an_earlier_one_left(api: ApiClient, names: list[str]) -> None:
    async with watched(api, names) as node:
        await node.show(node.drain(8))
        await node.observe()
        node.lead()
        assert await node.show() == {}


async def test_a_policy_without_conditions_has_those_of_drains_removed(
    api: ApiClient, names: list[str]
) -> None:
    async with watched(api, names) as node:
        assert await node.show(node.drain(8)) == DRAINING
        node.is_enabled = False
        assert await node.show(node.drain(7)) == {}
        node.is_enabled = True
        assert await node.show(node.drain(6)) == DRAINING


async def test_the_conditions_of_another_program_stay(api: ApiClient, names: list[str]) -> None:
    theirs: Conditions = {"DrainInProgress": ("False", "KubectlDrain")}
    async with watched(api, names) as node:
        await node.set_by_another("DrainInProgress", "False")
        await node.observe()
        assert await node.show(node.drain(8)) == theirs
        assert await node.show(node.drain(0, is_done=True)) == theirs
        assert await node.show() == theirs


async def test_another_program_takes_over_and_nodeguard_withdraws_its_own(
    api: ApiClient, names: list[str]
) -> None:
    theirs: Conditions = {"DrainInProgress": ("True", "KubectlDrain")}
    async with watched(api, names) as node:
        await node.show(node.drain(0, is_done=True))
        await node.set_by_another("DrainInProgress", "True")
        await node.observe()
        assert await node.show(node.drain(0, is_done=True)) == theirs


async def test_a_condition_that_the_watch_has_not_delivered_is_not_overwritten(
    api: ApiClient, names: list[str]
) -> None:
    async with watched(api, names) as node:
        await node.set_by_another("DrainInProgress", "True")
        assert await node.show(node.drain(8)) == {"DrainInProgress": ("True", "KubectlDrain")}


async def test_a_deleted_node_is_forgotten(api: ApiClient, names: list[str]) -> None:
    async with watched(api, names) as node:
        await node.show(node.drain(8))
        uid = node.uid
        await api.request("DELETE", f"{NODES}/{node.name}")
        node.observed.clear()
        node.writer.show([NodeDrain(uid, node.name, 8, 4, is_done=False)])
        await node.writers.idle()
        assert not node.writers.messages
