"""The last report of an agent that SIGTERM ends, to a slow aggregator: what fits into its time. In virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeguard.agent.reporting.endpoint_pool import LAST, EndpointPool
from nodeguard.agent.reporting.http1 import HttpResponse, HttpsTransport
from nodeguard.wire.encoding import encode
from tests.agent.reporting.receiver import Receiver
from tests.agent.reporting.scene import Agent
from tests.aggregator.virtual_time import run_virtually


class SlowTransport(HttpsTransport):
    """A connection to an aggregator that answers each message after some seconds."""

    def __init__(self, receiver: Receiver, seconds: float) -> None:
        super().__init__("http://127.0.0.1:1/", None)
        self._receiver, self._seconds = receiver, seconds

    async def _post(self, body: bytes) -> HttpResponse:
        await asyncio.sleep(self._seconds)
        return HttpResponse(200, encode(self._receiver.apply(body)))


async def end_during_the_first_message(agent: Agent, receiver: Receiver, seconds: float) -> float:
    """End an agent while it sends its first report. Returns the seconds until it has ended."""
    loop = asyncio.get_running_loop()
    pool = EndpointPool([SlowTransport(receiver, seconds)], agent.queue, lambda: 0.0)
    agent.offer("a")
    pool.start(lambda: agent.now)
    await asyncio.sleep(0.01)
    began = loop.time()
    await pool.end(10.0)
    return loop.time() - began


@pytest.mark.parametrize(
    ("seconds", "leaving"),
    [
        pytest.param(0.05, [False, True], id="fast"),
        pytest.param(0.4, [False, True], id="slow"),
        pytest.param(0.6, [], id="too slow for the message under way"),
    ],
)
def test_an_agent_that_ends_while_it_sends_reports_that_it_leaves(
    tmp_path: Path, seconds: float, leaving: list[bool]
) -> None:
    receiver = Receiver()
    took = run_virtually(end_during_the_first_message(Agent(tmp_path, []), receiver, seconds))
    assert [report.leaving for report in receiver.applied] == leaving
    assert took <= LAST
