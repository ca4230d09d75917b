"""Writers of an aggregator on a real control plane; Nodes are read instead of watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.kube import nodes
from nodeguard.kube.client import ApiClient
from nodeguard.kube.executor import Executor, WriteOutcome, WriteResult
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.local.rate_limiter import TokenBucket
from nodeguard.model.node import Node, NodeCondition, Taint
from tests.logs import LogLines, recorded_log
from tests.waiting import PATIENCE

NODES = "/api/v1/nodes"
QUARANTINE = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")
SUSPECT = Taint("nodeguard.dev/suspect", "NoSchedule", "gpu")


@dataclass
class Writing:
    """Writers, their outcomes and log, and switches of the lease."""

    client: FencedClient
    first: WriteQueue
    later: WriteQueue
    executor: Executor
    outcomes: list[WriteOutcome]
    log: LogLines
    nodes: dict[str, Node] = field(default_factory=dict)
    may: bool = True
    left: float = 30.0
    renewals: int = 1

    def results(self, name: str) -> list[WriteResult]:
        return [outcome.result for outcome in self.outcomes if outcome.desired.name == name]

    @property
    def messages(self) -> list[str]:
        """Log lines since the writers began."""
        return self.log.text()

    async def until(self, done: Callable[[], object]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(PATIENCE):
            while not done():
                await asyncio.sleep(0.01)

    async def idle(self) -> None:
        """Wait until no write is pending."""
        await self.until(lambda: not self.first.pending and not self.later.pending)


@asynccontextmanager
async def writing(
    api: ApiClient, epoch: int = 1, rate: float = 1000.0, burst: int = 10
) -> AsyncIterator[Writing]:
    """Run writers. rate, burst: of the marks."""
    outcomes: list[WriteOutcome] = []
    client = FencedClient(
        api,
        epoch,
        may_write=lambda: writers.may,
        seconds_left=lambda: writers.left,
        renewals=lambda: writers.renewals,
    )
    first = WriteQueue(client, TokenBucket(rate, burst))
    second = WriteQueue(client, TokenBucket(1000.0, 10), after=first)
    nodes: dict[str, Node] = {}
    executor = Executor(client, first, second, observed_node=nodes.get, on_outcome=outcomes.append)
    running = [asyncio.create_task(queue.run()) for queue in (first, second)]
    try:
        with recorded_log() as log:
            writers = Writing(client, first, second, executor, outcomes, log, nodes)
            yield writers
        for task in running:
            assert not task.done() or client.is_fenced, task
    finally:
        for task in running:
            task.cancel()
        done = await asyncio.gather(*running, return_exceptions=True)
        for error in done:
            if isinstance(error, Exception):
                raise error


def ours(gpu_node: Node) -> set[Taint]:
    """Return the taints of nodeguard on a Node."""
    return {taint for taint in gpu_node.taints if taint.key.startswith("nodeguard.dev/")}


async def read(api: ApiClient, name: str) -> Node:
    return nodes.decode_node(await api.request("GET", f"{NODES}/{name}"))


def desired(
    node: Node,
    *taints: Taint,
    state: str = "{}",
    cordon: bool | None = None,
    condition: NodeCondition | None = None,
) -> DesiredNode:
    return DesiredNode(node.uid, node.name, taints, state if taints else "", cordon, condition)
