"""What it costs to know 7,500 Nodes with 40 images each, beside a plain list in the same run.

A real API server has them (`make controlplane` builds it). Each way to read them runs in a process of its
own: seconds and processor seconds until all are known, by how much memory has grown then and at its highest,
and for how much of its own processor time the event loop was kept at most. Then what a change of one costs
who follows them.
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
    """Who follows Nodes, as simple as can be."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changes = 0
        self.all = asyncio.Event()

    def changed(self, thing: Node) -> None:
        """Keep it."""
        self.nodes[thing.uid] = thing
        self.changes += 1

    def gone(self, uid: str) -> None:
        """Forget it."""
        del self.nodes[uid]

    def synced(self) -> None:
        """All are known."""
        self.all.set()


async def streamed(api: ApiClient) -> object:
    """All Nodes, as nodeguard reads them."""
    fleet = Fleet()
    task = asyncio.ensure_future(following(api, fleet).run())
    await fleet.all.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return fleet


async def paged(api: ApiClient) -> object:
    """The same of a server that streams no lists."""
    with mock.patch.object(watch, "WatchState", partial(WatchState, list_in_pages=True)):
        return await streamed(api)


async def plain(api: ApiClient) -> object:
    """All Nodes in one answer, and what json makes of it."""
    client.MAX_RESPONSE_BYTES = sys.maxsize
    return json.loads(await api.request("GET", PATH, timeout=120.0))


async def changes(api: ApiClient) -> float:
    """Processor seconds of who follows, for CHANGES changes that another process makes."""
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
            one = apart(measured, kubeconfig, way)
            print(
                f"{name:<26}{one.wall:6.2f} s  {one.cpu:6.2f} s of processor  {one.growth:6.0f} MiB kept"
                f"  {one.highest:6.0f} MiB at most  {one.stall * 1000:7.1f} ms stall"
            )
        print(
            f"a change of one Node      {apart(followed, kubeconfig) / CHANGES * 1000:6.3f} ms of processor"
        )


def measured(kubeconfig: str, way: Callable[[ApiClient], Awaitable[object]]) -> Figures:
    """A way to read Nodes, measured in this very process."""

    async def measure(api: ApiClient) -> Figures:
        await api.request("GET", f"{PATH}/node-0")  # the connection
        before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
        stall = Stall()
        kept = await way(api)
        took = time.perf_counter() - wall, time.process_time() - cpu
        longest = await stall.end()
        figures = Figures(*took, memory("VmRSS") - before, memory("VmHWM") - before, longest)
        del kept
        return figures

    figures: Figures = run(kubeconfig, measure)
    return figures


def followed(kubeconfig: str) -> float:
    """What following changes costs; who makes them is another process."""
    other = multiprocessing.get_context("spawn").Process(target=run, args=(kubeconfig, stir))
    other.start()
    took: float = run(kubeconfig, changes)
    other.join()
    return took


async def fill(api: ApiClient) -> None:
    """Make the Nodes."""
    await gathered(NODES, lambda number: api.request("POST", PATH, body=large(number), timeout=60.0))


async def stir(api: ApiClient) -> None:
    """Change Nodes, once the follower has had time to know them all."""
    await asyncio.sleep(6.0)

    def change(number: int) -> Awaitable[object]:
        body = {"metadata": {"labels": {"stirred": str(number)}}}
        return api.request(
            "PATCH", f"{PATH}/node-{number}", body=body, content_type=MERGE_PATCH, timeout=60.0
        )

    await gathered(CHANGES, change)


async def weigh(api: ApiClient) -> int:
    """Bytes of all Nodes, from some."""
    return len(await api.request("GET", PATH, query={"limit": 100})) * NODES // 100


async def gathered(many: int, ask: Callable[[int], Awaitable[object]]) -> None:
    """Ask for each of many, some at once."""
    numbers = iter(range(many))

    async def worker() -> None:
        for number in numbers:
            await ask(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def large(number: int) -> dict[str, Any]:
    """A Node as a kubelet and its friends make them."""
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
    """The longest time for which the event loop came to nothing else."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def end(self) -> float:
        """Seconds; to be called once."""
        await asyncio.sleep(0.01)  # it has to come to its turn after the last of them
        self._task.cancel()
        return self._longest

    async def _watch(self) -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            self._longest = max(self._longest, time.process_time() - before)


def memory(field: str) -> float:
    """A line of this process's status, in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def run(kubeconfig: str, use: Callable[[ApiClient], Coroutine[Any, Any, Any]]) -> Any:
    """What something made of a client."""

    async def with_api() -> Any:
        api = await ApiClient.connect(kubeconfig)
        try:
            return await use(api)
        finally:
            await api.close()

    return uvloop.run(with_api())


def apart(what: Callable[..., Any], *words: object) -> Any:
    """What a function returns in a new process."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_answer, args=(answers, what, words))
    process.start()
    answer = answers.get()
    process.join()
    return answer


def _answer(answers: Any, what: Callable[..., Any], words: tuple[object, ...]) -> None:
    answers.put(what(*words))


if __name__ == "__main__":
    main()
