"""A watch handler that records what it receives."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from nodeguard.kube.watch import Watch
from nodeguard.model.node import Node
from tests.waiting import in_background


class NodeRecorder:
    """A handler that records Nodes and their changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changes: list[str] = []
        self.lost: list[str] = []
        self.syncs = 0

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


def running(watch: Watch[Any]) -> AbstractAsyncContextManager[None]:
    """Run a watch until the block ends."""
    return in_background(watch.run())
