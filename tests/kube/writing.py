"""Writers as an aggregator has them, on a real control plane, and a watch's place taken by plain reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from nodeguard.kube import nodes
from nodeguard.kube.bucket import Bucket
from nodeguard.kube.client import Api
from nodeguard.kube.executor import Executor, Outcome, Result
from nodeguard.kube.lane import Lane
from nodeguard.kube.permit import Permit
from nodeguard.model.mark import Desired
from nodeguard.model.node import Condition, Node, Taint
from tests.waiting import PATIENCE

QUARANTINE = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")
SUSPECT = Taint("nodeguard.dev/suspect", "NoSchedule", "gpu")


@dataclass
class Writing:
    """What came of writing, and the switches of it."""

    permit: Permit
    first: Lane
    later: Lane
    executor: Executor
    outcomes: list[Outcome]
    told: list[str]
    fenced: list[str]
    nodes: dict[str, Node] = field(default_factory=dict)
    may: bool = True
    left: float = 30.0

    def results(self, name: str) -> list[Result]:
        return [one.result for one in self.outcomes if one.desired.name == name]

    async def until(self, done: Callable[[], object]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(PATIENCE):
            while not done():
                await asyncio.sleep(0.01)

    async def idle(self) -> None:
        """Wait until nothing waits to be written."""
        await self.until(lambda: not self.first.waiting and not self.later.waiting)


@asynccontextmanager
async def writing(api: Api, epoch: int = 1, rate: float = 1000.0, burst: int = 10) -> AsyncIterator[Writing]:
    """Writers that run. rate, burst: of the marks."""
    told: list[str] = []
    fenced: list[str] = []
    outcomes: list[Outcome] = []
    permit = Permit(api, epoch, may_write=lambda: made.may, left=lambda: made.left, fenced=fenced.append)
    first = Lane(permit, Bucket(rate, burst), told.append)
    second = Lane(permit, Bucket(1000.0, 10), told.append, after=first)
    nodes: dict[str, Node] = {}
    executor = Executor(permit, first, second, observed=nodes.get, outcome=outcomes.append)
    made = Writing(permit, first, second, executor, outcomes, told, fenced, nodes)
    running = [asyncio.create_task(lane.run()) for lane in (first, second)]
    try:
        yield made
        for task in running:
            assert not task.done() or made.fenced, task
    finally:
        for task in running:
            task.cancel()
        done = await asyncio.gather(*running, return_exceptions=True)
        for error in done:
            if isinstance(error, Exception):
                raise error


async def read(api: Api, name: str) -> Node:
    return nodes.node(await api.request("GET", f"/api/v1/nodes/{name}"))


def desired(
    node: Node,
    *taints: Taint,
    state: str = "{}",
    cordon: bool | None = None,
    condition: Condition | None = None,
) -> Desired:
    return Desired(node.uid, node.name, taints, state if taints else "", cordon, condition)
