from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.agent.reporting.http1 import DEADLINE
from tests.agent.reporting.receiver import closed_port, receiving
from tests.agent.reporting.scene import Agent, black_hole, digests, seconds_until
from tests.logs import LogLines
from tests.waiting import PATIENCE, PROMPTLY, until_async

pytestmark = pytest.mark.usefixtures("patient_end")


@asynccontextmanager
async def sending(agent: Agent) -> AsyncIterator[EndpointPool]:
    """Run the pool of an agent."""
    pool = agent.pool = EndpointPool(
        [agent.transport(address) for address in agent.addresses], agent.queue, Random(7).random
    )
    pool.start(lambda: agent.now)
    try:
        yield pool
    finally:
        await pool.end(PATIENCE)


async def test_a_task_sends_at_once_and_once_more_at_its_end(tmp_path: Path) -> None:
    with receiving() as receiver:
        agent = Agent(tmp_path, [receiver.address])
        async with sending(agent):
            agent.offer("a")
            await until_async(lambda: len(receiver.applied) == 1)
            agent.offer("b")
            await until_async(lambda: len(receiver.applied) == 2)
            agent.offer()
        assert digests(receiver.applied) == agent.offered
        assert [report.leaving for report in receiver.applied] == [False, False, False, True]


async def test_an_aggregator_that_hangs_delays_no_other(tmp_path: Path) -> None:
    with receiving() as receiver, black_hole() as silent:
        agent = Agent(tmp_path, [silent, receiver.address, silent])
        async with sending(agent) as pool:
            for at in range(20):
                agent.offer(f"check-{at}")
                assert await seconds_until(lambda: digests(receiver.applied) == agent.offered) < DEADLINE
            agent.offer("last")
            began = time.monotonic()
            await pool.end(PATIENCE)
            assert time.monotonic() - began < DEADLINE
        assert digests(receiver.applied) == agent.offered
        assert receiver.applied[-1].leaving
        assert sum(report.leaving for report in receiver.applied) == 1


async def test_every_aggregator_that_acknowledges_gets_the_last_report(tmp_path: Path) -> None:
    with receiving() as first, receiving(tls=True) as second, black_hole() as silent:
        agent = Agent(tmp_path, [first.address, silent, second.address])
        async with sending(agent):
            agent.offer("a")
            await until_async(lambda: first.applied and second.applied)
        for receiver in (first, second):
            assert [report.leaving for report in receiver.applied] == [False, True]
            assert digests(receiver.applied) == agent.offered


async def test_the_end_waits_for_an_exchange_under_way(tmp_path: Path) -> None:
    with receiving() as receiver:
        received, answer = threading.Event(), threading.Event()

        def slow() -> str:
            received.set()
            answer.wait(PATIENCE)
            return ""

        receiver.fault = slow
        agent = Agent(tmp_path, [receiver.address])
        async with sending(agent):
            agent.offer("a")
            await until_async(received.is_set)
            threading.Timer(0.1, answer.set).start()
        assert [report.leaving for report in receiver.applied] == [False, True]


async def test_the_end_does_not_wait_for_an_aggregator_that_is_down(tmp_path: Path, log: LogLines) -> None:
    agent = Agent(tmp_path, [f"http://127.0.0.1:{closed_port()}/"])
    async with sending(agent):
        agent.offer("a")
        await until_async(log.errors)
        began = time.monotonic()
    assert time.monotonic() - began < PROMPTLY
    assert len(agent.spool) == 1


def test_reporting_imports_no_http_client_but_h11() -> None:
    code = (
        "import sys, nodeguard.agent.reporting.endpoint_pool; "
        "print(sorted({'aiohttp', 'kubernetes', 'pydantic', 'requests', 'urllib3', 'httpx', 'http.client', 'email'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_many_changes_are_sent_in_order_without_loss(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    harmless = ["", "", "duplicate", "close", "close silently"]
    with receiving() as first, receiving() as second, black_hole() as silent:
        first.fault = second.fault = lambda: random.choice(harmless)
        agent = Agent(tmp_path, [first.address, silent, second.address])
        async with sending(agent):
            for at in range(300):
                agent.offer(f"check-{at}")
                if len(agent.spool) > 8 or random.random() < 0.2:
                    await until_async(lambda: len(agent.spool) <= random.randint(0, 8))
            await until_async(lambda: not agent.spool)
        for receiver in (first, second):
            numbers = [report.sequence for report in receiver.applied]
            positions = [agent.offered.index(digest) for digest in digests(receiver.applied)]
            assert numbers == sorted(set(numbers))
            assert positions == sorted(set(positions))
            assert positions[-1] == len(agent.offered) - 1
            assert receiver.applied[-1].leaving
        assert {report.digest for report in first.applied + second.applied} == set(agent.offered)
        assert agent.spool.dropped == 0
