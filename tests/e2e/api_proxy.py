"""A proxy between one aggregator and the API server, in a thread of its own: a test cuts or delays it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.controlplane.cluster import Cluster
from tests.e2e.fleet import Aggregator
from tests.kube.detour import Detour
from tests.waiting import PATIENCE


class ApiProxy:
    """Controls a proxy from another thread."""

    def __init__(self, detour: Detour, loop: asyncio.AbstractEventLoop) -> None:
        self._detour = detour
        self._loop = loop

    def delay(self, seconds: float) -> None:
        """Deliver each response so much later."""
        self._detour.delay = seconds

    def stall(self) -> None:
        """Deliver nothing, and close no connection: as if the network is lost."""
        self._loop.call_soon_threadsafe(self._detour.stall)

    def restore(self) -> None:
        self._loop.call_soon_threadsafe(self._detour.restore)


@contextmanager
def proxied(cluster: Cluster, *aggregators: Aggregator) -> Iterator[list[ApiProxy]]:
    """Put a proxy before each of these aggregators, which are not started yet."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    detours = [Detour(cluster.port) for _ in aggregators]
    try:
        for detour, aggregator in zip(detours, aggregators, strict=True):
            asyncio.run_coroutine_threadsafe(detour.__aenter__(), loop).result(PATIENCE)
            aggregator.api_port = int(detour.url.rpartition(":")[2])
        yield [ApiProxy(detour, loop) for detour in detours]
    finally:
        for aggregator in aggregators:
            aggregator.kill()
        for detour in detours:
            asyncio.run_coroutine_threadsafe(detour.__aexit__(None, None, None), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
