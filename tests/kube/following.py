"""Following a collection in tests: what was told, and waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from nodeguard.kube.watch import Watch
from nodeguard.model.node import Node


class Told:
    """A taker that remembers Nodes, by name, as a planner would."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changes: list[str] = []
        self.lost: list[str] = []
        self.syncs = 0
        self.said: list[str] = []

    def changed(self, thing: Node) -> None:
        self.nodes[thing.uid] = thing
        self.changes.append(thing.name)

    def gone(self, uid: str) -> None:
        self.lost.append(self.nodes.pop(uid).name)

    def synced(self) -> None:
        self.syncs += 1

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.nodes.values()}


@asynccontextmanager
async def running(watching: Watch[Any]) -> AsyncIterator[None]:
    """Follow for as long as the block runs."""
    task = asyncio.ensure_future(watching.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
