from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodeguard.agent.agent import Agent
from nodeguard.agent.transitions import Line
from nodeguard.model.finding import Health, Knowledge
from nodeguard.model.observation import Observation
from nodeguard.sources.machine import Machine
from tests.agent.scene import Scripted
from tests.agent.test_judgement import LOW, judgement
from tests.sources.fake_machine import FakeMachine


def low(_: Machine) -> Iterator[Observation]:
    yield Observation("memory", "node", signals={"a.level": 3})


async def until(agent: Agent, condition: Any) -> None:
    """Wait for something that an agent comes to by itself."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
    agent.stop()


def made(*sources: Scripted) -> tuple[Agent, list[Line]]:
    lines: list[Line] = []
    machine: Any = FakeMachine()
    return Agent(machine, sources, judgement(LOW), lines.append, 0.0), lines


async def test_what_is_read_together_is_judged_once_and_told() -> None:
    agent, lines = made(Scripted("memory", low), Scripted("clock"))
    await asyncio.gather(agent.run(), until(agent, lambda: agent.verdict))
    assert agent.rounds == 1
    assert [line["event"] for line in lines] == ["finding", "node"]
    assert agent.verdict is not None
    assert agent.verdict.health is Health.SUSPECT
    assert (list(agent.unheard()), agent.ages()) == ([], {"memory": 0.0, "clock": 0.0})


async def test_a_source_that_does_not_answer_keeps_no_other_waiting() -> None:
    released = threading.Event()

    def stuck(_: Machine) -> Iterator[Observation]:
        released.wait()
        yield from ()

    agent, _ = made(Scripted("memory", low), Scripted("stuck", stuck, deadline=0.5))
    try:
        await asyncio.gather(
            agent.run(), until(agent, lambda: not list(agent.unheard()) and agent.rounds == 2)
        )
    finally:
        released.set()
    assert agent.verdict is not None
    assert [one.check for one in agent.verdict.findings] == ["check-0"]
    assert [(one.source, one.why) for one in agent.verdict.unread] == [
        ("stuck", "gave no answer within 0.5 s")
    ]


async def test_an_error_of_our_own_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, lines = made(Scripted("memory", low))
    failing: Any = lambda *_: 1 / 0  # noqa: E731
    monkeypatch.setattr(agent._judgement, "judge", failing)

    async def again() -> None:
        async with asyncio.timeout(10):
            while not lines:
                await asyncio.sleep(0.005)
            agent.judge()
        monkeypatch.undo()
        agent.read("memory")

    await asyncio.gather(agent.run(), again(), until(agent, lambda: agent.verdict))
    assert lines[0] == {"event": "error", "why": "please report it: ZeroDivisionError: division by zero"}
    assert [line["event"] for line in lines[1:]] == ["finding", "node"]


async def test_a_round_on_request_is_judged_at_once_and_never_twice_at_a_time() -> None:
    log = Scripted("kmsg")
    agent, _ = made(Scripted("memory", low), log)

    async def ask() -> None:
        await until_rounds(1)
        agent.read("kmsg", together=0.0)
        assert agent.is_reading("kmsg")
        agent.read("kmsg", together=0.0)
        await until_rounds(2)
        agent.stop()

    async def until_rounds(number: int) -> None:
        async with asyncio.timeout(10):
            while agent.rounds < number:
                await asyncio.sleep(0.005)

    await asyncio.gather(agent.run(), ask())
    assert log.rounds == 2


async def test_a_reader_that_cannot_be_started_is_a_failed_reading() -> None:
    agent, _ = made(Scripted("memory", low))
    before = threading.stack_size(1 << 46)
    try:
        await asyncio.gather(agent.run(), until(agent, lambda: agent.verdict))
    finally:
        threading.stack_size(before)
    [seen] = agent.latest["memory"].observations
    assert (seen.status, seen.detail) == (
        "failed",
        "the reader cannot be started (can't start new thread): raise the limit on processes",
    )


async def test_what_cannot_be_judged_any_more_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _ = made(Scripted("memory", low))

    async def fail() -> None:
        async with asyncio.timeout(10):
            while agent.verdict is None:
                await asyncio.sleep(0.005)
        failing: Any = lambda *_: 1 / 0  # noqa: E731
        monkeypatch.setattr(agent._judgement, "judge", failing)
        agent.judge()
        agent.stop()

    await asyncio.gather(agent.run(), fail())
    assert agent.verdict is not None
    assert (agent.verdict.health, agent.verdict.knowledge) == (Health.SUSPECT, Knowledge.UNKNOWN)
