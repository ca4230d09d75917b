"""Seconds until 750 of 1,000 Nodes are tainted, beside a bare loop of patches in the same run.

`python bench/taints.py`. The bare patches go one after the other. The API server and etcd are real, and share
the processors of this machine. The executor is measured with its limit of 50 writes a second, and without it.
The latency is of one Node at a time, from the plan to the response.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.kube import nodes
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.executor import Executor, WriteOutcome
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.local.rate_limiter import TokenBucket
from nodeguard.model.mark import NO_SCHEDULE, Mark
from nodeguard.model.node import Node, Taint
from tests.controlplane.cluster import API, cluster
from tests.controlplane.objects import node

FLEET = 1_000
MARKED = 750
SINGLE = 100
WIDTHS = (1, 5, 10, 20, 40)

# The limits of the aggregator: writes a second, and at once.
RATE = 50.0
BURST = 50

TAINT = Taint(Mark.QUARANTINE.key, NO_SCHEDULE, "gpu")
STATE = (
    '{"causes":[{"mark":"quarantine","check":"gpu-lost","target":"gpu/0000:3b:00","word":"gpu","since":1.0}]}'
)


async def main() -> None:
    """Print the figures."""
    with cluster(API) as made:
        api = await ApiClient.connect(str(made.kubeconfig))
        try:
            await _make(api)
            print(f"{MARKED} of {FLEET} Nodes tainted, seconds (writes a second):")
            _row("bare patches, one after the other", await _bare(api))
            for width in WIDTHS:
                _row(f"executor, no limit, {width} at a time", await _executed(api, inf, width))
            _row(f"executor, {RATE:g}/s and {BURST} at once", await _executed(api, RATE, 20))
            times = sorted(await _singly(api))
            typical, worst = median(times) * 1000, times[int(0.99 * SINGLE)] * 1000
            print(f"latency of a Node: {typical:.1f} ms at the median, {worst:.1f} ms at p99")
        finally:
            await api.close()


async def _make(api: ApiClient) -> None:
    for begin in range(0, FLEET, 50):
        await asyncio.gather(
            *(
                api.request("POST", nodes.PATH, body=node(f"gpu-{number}"))
                for number in range(begin, begin + 50)
            )
        )


async def _all(api: ApiClient) -> list[Node]:
    return [
        nodes.decode_node(await api.request("GET", f"{nodes.PATH}/gpu-{number}")) for number in range(MARKED)
    ]


async def _bare(api: ApiClient) -> float:
    targets = await _all(api)
    began = time.perf_counter()
    for target in targets:
        body = {
            "metadata": {"resourceVersion": target.version, "annotations": {"nodeguard.dev/state": STATE}},
            "spec": {"taints": [{"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}]},
        }
        await api.request("PATCH", f"{nodes.PATH}/{target.name}", body=body, content_type=MERGE_PATCH)
    took = time.perf_counter() - began
    await _unmark(api)
    return took


async def _unmark(api: ApiClient) -> None:
    targets = await _all(api)
    async with _executor(api, inf, 20, targets) as write:
        await write([DesiredNode(target.uid, target.name) for target in targets])


async def _executed(api: ApiClient, rate: float, width: int) -> float:
    targets = await _all(api)
    async with _executor(api, rate, width, targets) as write:
        took = await write([DesiredNode(target.uid, target.name, (TAINT,), STATE) for target in targets])
    await _unmark(api)
    return took


async def _singly(api: ApiClient) -> list[float]:
    targets = (await _all(api))[:SINGLE]
    async with _executor(api, RATE, 20, targets) as write:
        taken = []
        for target in targets:
            taken.append(await write([DesiredNode(target.uid, target.name, (TAINT,), STATE)]))
            await asyncio.sleep(1.5 / RATE)
        return taken


Write = Callable[[list[DesiredNode]], Awaitable[float]]


@asynccontextmanager
async def _executor(api: ApiClient, rate: float, width: int, targets: list[Node]) -> AsyncIterator[Write]:
    outcomes: list[WriteOutcome] = []
    permit = FencedClient(api, 1, may_write=lambda: True, seconds_left=lambda: 30.0, renewals=lambda: 1)
    bucket = TokenBucket(1e6, 10_000) if rate == inf else TokenBucket(rate, BURST)
    marks = WriteQueue(permit, bucket, max_in_flight=width)
    later = WriteQueue(permit, TokenBucket(20.0, 20), after=marks)
    observed = {target.name: target for target in targets}
    executor = Executor(permit, marks, later, observed_node=observed.get, on_outcome=outcomes.append)

    async def write(desired: list[DesiredNode]) -> float:
        began, before = time.perf_counter(), len(outcomes)
        for item in desired:
            executor.set_desired(item)
        while len(outcomes) < before + len(desired):
            await asyncio.sleep(0.0005)
        return time.perf_counter() - began

    running = asyncio.create_task(marks.run())
    try:
        yield write
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _row(name: str, took: float) -> None:
    print(f"  {name:36} {took:6.2f}  ({MARKED / took:.0f})")


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
