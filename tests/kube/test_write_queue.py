"""The queue of writes, with a request that the server fails while it takes others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodeguard.kube.errors import ApiError
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.local.rate_limiter import TokenBucket
from tests.waiting import in_background, until_async

UNAVAILABLE = ApiError(503, "ServiceUnavailable", "the webhook of this Node does not answer")


class Server:
    """Writes in the order of their requests; those of some keys fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.requests: list[str] = []

    async def send(self, key: str) -> None:
        self.requests.append(key)
        if key in self.failing:
            raise UNAVAILABLE


def new_queue() -> WriteQueue:
    client: Any = SimpleNamespace(is_fenced=False, can_write=lambda: True)
    return WriteQueue(client, TokenBucket(1000.0, 1000.0))


async def test_a_node_with_failing_writes_delays_no_other() -> None:
    queue, server = new_queue(), Server("gpu-1")
    queue.put("gpu-1", "gpu-1", server.send)
    async with in_background(queue.run()):
        await until_async(lambda: len(server.requests) == 3)
        queue.put("gpu-2", "gpu-2", server.send)
        await until_async(lambda: "gpu-2" in server.requests)
    assert server.requests == ["gpu-1"] * 3 + ["gpu-2"]


async def test_writes_wait_together_while_the_server_fails_them_all() -> None:
    names = [f"gpu-{number}" for number in range(100)]
    queue, server = new_queue(), Server(*names)
    for name in names:
        queue.put(name, name, server.send)
    async with in_background(queue.run()):
        await until_async(lambda: len(server.requests) >= 5)
        # All hundred may be sent at once, were it not for those that failed.
        assert len(server.requests) < 20
        server.failing.clear()
        await until_async(lambda: not queue.pending)


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_write_that_failed_is_sent_again(failures: int) -> None:
    queue, server = new_queue(), Server("gpu-1")
    queue.put("gpu-1", "gpu-1", server.send)
    async with in_background(queue.run()):
        await until_async(lambda: len(server.requests) == failures)
        server.failing.clear()
        await until_async(lambda: not queue.pending)
    assert server.requests == ["gpu-1"] * (failures + 1)
