"""Cost of reading and watching 7,500 Nodes with 40 images each, beside a plain list in the same run.

A real API server has them (`make controlplane` builds it). Each method runs in a process of its own: seconds
and CPU seconds until all Nodes are read, the growth of memory by then and at most, and the longest stall of
the event loop in CPU time. Then the cost of a change of one Node to a watcher.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import uvloop

from nodeguard.kube import client, watch
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.nodes import PATH
from nodeguard.kube.nodes import watch_nodes as following
from nodeguard.kube.watch_state import WatchState
from nodeguard.model.node import Node

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.controlplane.cluster import API, cluster
from tests.controlplane.objects import node

NODES = 7500
IMAGES = 40
CHANGES = 1000
AT_ONCE = 20


class Figures(msgspec.Struct):
    """Seconds and MiB."""

    wall: float
    cpu: float
    growth: float
    highest: float
    stall: float


class Fleet:
    """A minimal handler of a watch of Nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changes = 0
        self.all = asyncio.Event()

    def changed(self, thing: Node) -> None:
        """Store a Node."""
        self.nodes[thing.uid] = thing
        self.changes += 1

    def gone(self, uid: str) -> None:
        """Remove a Node."""
        del self.nodes[uid]

    def synced(self) -> None:
        """Record that all Nodes are read."""
        self.all.set()


async def streamed(api: ApiClient) -> object:
    """Read all Nodes as nodeguard does."""
    fleet = Fleet()
    task = asyncio.ensure_future(following(api, fleet).run())
    await fleet.all.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return fleet


async def paged(api: ApiClient) -> object:
    """Read all Nodes from a server without streamed lists."""
    with mock.patch.object(watch, "WatchState", partial(WatchState, list_in_pages=True)):
        return await streamed(api)


async def plain(api: ApiClient) -> object:
    """Read all Nodes in one response, and decode it with json."""
    client.MAX_RESPONSE_BYTES = sys.maxsize
    return json.loads(await api.request("GET", PATH, timeout=120.0))


async def changes(api: ApiClient) -> float:
    """Return the CPU seconds of a watcher for CHANGES changes by another process."""
    fleet = Fleet()
    task = asyncio.ensure_future(following(api, fleet).run())
    await fleet.all.wait()
    fleet.changes = 0
    began = time.process_time()
    while fleet.changes < CHANGES:
        await asyncio.sleep(0.05)
    took = time.process_time() - began
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return took


def main() -> None:
    """Print the figures."""
    with cluster(API) as made:
        kubeconfig = str(made.kubeconfig)
        run(kubeconfig, fill)
        size = run(kubeconfig, weigh)
        print(f"{NODES} Nodes, {size / 1e6:.0f} MB")
        for name, way in (
            ("reference: a plain list", plain),
            ("streamed list", streamed),
            ("pages of 500", paged),
        ):
            figures = run_in_process(measured, kubeconfig, way)
            print(
                f"{name:<26}{figures.wall:6.2f} s  {figures.cpu:6.2f} s of CPU  {figures.growth:6.0f} MiB"
                f"  {figures.highest:6.0f} MiB at most  {figures.stall * 1000:7.1f} ms stall"
            )
        change = run_in_process(followed, kubeconfig) / CHANGES
        print(f"a change of one Node      {change * 1000:6.3f} ms of CPU")


def measured(kubeconfig: str, way: Callable[[ApiClient], Awaitable[object]]) -> Figures:
    """Measure a method of reading Nodes in this process."""

    async def measure(api: ApiClient) -> Figures:
        await api.request("GET", f"{PATH}/node-0")  # the connection
        before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
        stall = Stall()
        result = await way(api)
        took = time.perf_counter() - wall, time.process_time() - cpu
        longest = await stall.end()
        figures = Figures(*took, memory("VmRSS") - before, memory("VmHWM") - before, longest)
        del result
        return figures

    figures: Figures = run(kubeconfig, measure)
    return figures


def followed(kubeconfig: str) -> float:
    """Measure a watcher while another process changes Nodes."""
    other = multiprocessing.get_context("spawn").Process(target=run, args=(kubeconfig, stir))
    other.start()
    took: float = run(kubeconfig, changes)
    other.join()
    return took


async def fill(api: ApiClient) -> None:
    """Create the Nodes."""
    await gathered(NODES, lambda number: api.request("POST", PATH, body=large(number), timeout=60.0))


async def stir(api: ApiClient) -> None:
    """Change Nodes after the watcher had time to read them all."""
    await asyncio.sleep(6.0)

    def change(number: int) -> Awaitable[object]:
        body = {"metadata": {"labels": {"stirred": str(number)}}}
        return api.request(
            "PATCH", f"{PATH}/node-{number}", body=body, content_type=MERGE_PATCH, timeout=60.0
        )

    await gathered(CHANGES, change)


async def weigh(api: ApiClient) -> int:
    """Return the bytes of all Nodes, estimated from some."""
    return len(await api.request("GET", PATH, query={"limit": 100})) * NODES // 100


async def gathered(count: int, ask: Callable[[int], Awaitable[object]]) -> None:
    """Run a request for each number, some at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await ask(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def large(number: int) -> dict[str, Any]:
    """Return a Node with the images, labels and annotations of a real one."""
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.{flag}": "true" for flag in range(30)}
    made = node(f"node-{number}", labels={**labels, "topology.kubernetes.io/rack": f"rack-{number // 16}"})
    made["status"]["images"] = [
        {
            "names": [
                f"registry.example.com/team-{image}/image@sha256:{image:064x}",
                f"registry.example.com/team-{image}/image:v1.{image}",
            ],
            "sizeBytes": 10_000_000 + image,
        }
        for image in range(IMAGES)
    ]
    made["metadata"]["annotations"] = {f"csi.example.com/{name}": "x" * 150 for name in range(10)}
    return made


class Stall:
    """The longest stall of the event loop in CPU time."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def end(self) -> float:
        """Stop, and return the seconds."""
        await asyncio.sleep(0.01)  # the watch task needs a last turn
        self._task.cancel()
        return self._longest

    async def _watch(self) -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            self._longest = max(self._longest, time.process_time() - before)


def memory(field: str) -> float:
    """Return a field of this process's status in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def run(kubeconfig: str, use: Callable[[ApiClient], Coroutine[Any, Any, Any]]) -> Any:
    """Run a function with a client, and return its result."""

    async def with_api() -> Any:
        api = await ApiClient.connect(kubeconfig)
        try:
            return await use(api)
        finally:
            await api.close()

    return uvloop.run(with_api())


def run_in_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of a function in a new process."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_put_result, args=(results, function, arguments))
    process.start()
    result = results.get()
    process.join()
    return result


def _put_result(results: Any, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    results.put(function(*arguments))


if __name__ == "__main__":
    main()
