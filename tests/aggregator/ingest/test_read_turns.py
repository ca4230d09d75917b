from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.ingest.read_turns import ReadTurns
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Message
from tests.aggregator.ingest.scene import Served, agent, heartbeat, serving, serving_context, tokens
from tests.aggregator.issuer import Issuer
from tests.controlplane.certificates import Authority
from tests.logs import LogLines


class Work:
    """Work of connections: 4 ms of CPU time each, of 10 in a turn. done: names, in order."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.done: list[str] = []
        self.turns = ReadTurns(asyncio.get_running_loop(), lambda: self.cpu)

    def of(self, name: str) -> Callable[[], None]:
        def work() -> None:
            self.cpu += 0.004
            self.done.append(name)

        return work

    def read(self, *names: str) -> None:
        """Read data of connections, in one iteration of the event loop."""
        for name in names:
            if self.turns.begin_turn():
                self.of(name)()
            else:
                self.turns.wait(self.of(name))


async def test_a_turn_ends_after_its_time_and_the_rest_follows_in_order() -> None:
    work = Work()
    work.read(*"abcdefgh")
    assert work.done == [*"abc"]
    await asyncio.sleep(0)
    assert work.done == [*"abcdef"]
    work.read("i")
    assert work.done == [*"abcdef"], "new data does not overtake"
    await asyncio.sleep(0)
    assert work.done == [*"abcdefghi"]
    for _ in range(2):
        await asyncio.sleep(0)
    work.read("j")
    assert work.done[-1] == "j"


async def test_other_tasks_run_between_two_turns() -> None:
    work, seen = Work(), list[int]()

    async def other() -> None:
        while len(work.done) < 9:
            seen.append(len(work.done))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    work.read(*map(str, range(9)))
    await task
    assert seen == [3, 6]


async def test_each_turn_begins_with_its_whole_time() -> None:
    work = Work()
    for number in range(5):
        work.read(str(number))
        await asyncio.sleep(0)
        assert work.done[-1] == str(number)


async def test_data_after_a_turn_that_ended_early_begins_no_second_turn() -> None:
    work = Work()
    work.read(*"abcd")
    await asyncio.sleep(0)
    assert work.done == [*"abcd"]
    work.read(*"efghijklmno")
    assert work.done == [*"abcdef"], "the rest of the turn"
    await asyncio.sleep(0)
    assert work.done == [*"abcdefghi"]
    await asyncio.sleep(0)
    assert work.done == [*"abcdefghijkl"]


async def test_an_error_of_one_connection_does_not_stop_the_others() -> None:
    work, errors = Work(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def fail() -> None:
        raise ValueError

    work.read(*"abc")
    for proceed in (fail, work.of("d"), work.of("e")):
        work.turns.wait(proceed)
    for _ in range(3):
        await asyncio.sleep(0)
    assert work.done == [*"abcde"]
    assert [type(error) for error in errors] == [ValueError]


@pytest.mark.slow
def test_tasks_run_while_many_agents_send_at_once(
    issuer: Issuer, authority: Authority, tmp_path: Path, log: LogLines
) -> None:
    def busy(_: Caller, message: Message) -> Reply:
        end = time.thread_time() + 0.006
        while time.thread_time() < end:
            pass
        return Reply(VERSION, message.sequence)

    async def blocked(served: Served) -> list[int]:
        """Suspend the server until all messages are there; then count them at each iteration."""
        time.sleep(0.5)  # the event loop reads nothing meanwhile
        counts = []
        while len(served.received) < 60:
            await asyncio.sleep(0)
            counts.append(len(served.received))
        return counts

    with serving(lambda: tokens(issuer), serving_context(authority)) as served, ExitStack() as connections:
        served.handle = busy
        names = [f"node-{number}" for number in range(30)]
        agents = []
        for name in names:
            transport = agent(served, tmp_path / f"token-{name}", issuer.token(name), authority.certificate)
            connections.callback(transport.close)
            agents.append(transport)
        for name, transport in zip(names, agents, strict=True):
            assert transport.post(heartbeat(name)).status == 200
        future = asyncio.run_coroutine_threadsafe(blocked(served), served.loop)
        with ThreadPoolExecutor(30) as pool:
            sent = [
                pool.submit(transport.post, heartbeat(name, 2))
                for name, transport in zip(names, agents, strict=True)
            ]
            assert [response.result().status for response in sent] == [200] * 30
        counts = future.result(30.0)
        steps = [after - before for before, after in zip([30, *counts], counts, strict=False)]
        assert max(steps) <= 4
    assert log.text() == []
