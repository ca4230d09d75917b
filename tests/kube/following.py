"""A handler that records a watch, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from nodeguard.kube.watch import Watch
from nodeguard.model.node import Node


class NodeRecorder:
    """A handler that records Nodes and their changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changes: list[str] = []
        self.lost: list[str] = []
        self.syncs = 0
        self.messages: list[str] = []

    def changed(self, thing: Node) -> None:
        self.nodes[thing.uid] = thing
        self.changes.append(thing.name)

    def gone(self, uid: str) -> None:
        self.lost.append(self.nodes.pop(uid).name)

    def synced(self) -> None:
        self.syncs += 1

    @property
    def names(self) -> set[str]:
        return {node.name for node in self.nodes.values()}


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
