from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent import agent as agent_module
from nodeguard.agent.agent import Agent, SourceSchedule, source_ages
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.observation import Event, Observation
from nodeguard.sources.machine import Machine
from tests.agent.scene import NEVER, Scripted
from tests.logs import LogLines
from tests.pipeline.test_pipeline import LOW, judgement
from tests.sources.fake_machine import FakeMachine
from tests.waiting import until_async

# Bytes of a thread's stack: more than a process of 64-bit Linux can address.
TOO_LARGE = 1 << 47


def low(_: Machine) -> Iterator[Observation]:
    yield Observation("memory", "node", signals={"a.level": 3})


async def until(agent: Agent, condition: Any) -> None:
    """Wait for a condition of a running agent, and stop it."""
    try:
        await until_async(condition)
    finally:
        agent.stop()


def new_agent(*sources: Scripted) -> Agent:
    machine: Any = FakeMachine()
    for source in sources:
        source.interval = NEVER
    return Agent(machine, sources, judgement(LOW), 0.0)


async def test_a_reading_without_an_event_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [(), (Event("a.happened", 5.0),)]

    def read(_: Machine) -> Iterator[Observation]:
        yield Observation("kmsg", "node", signals={"kmsg.sequence": 7}, events=events.pop(0))

    log = Scripted("kmsg", read)
    agent = new_agent(log)
    agent.evaluations = 1  # the start is over
    monkeypatch.setattr(agent_module, "_WITHOUT_NEWS", NEVER)
    agent.read("kmsg", together=0.0)
    await until_async(lambda: not agent.is_reading("kmsg"))
    agent.read("kmsg", together=0.0)
    await until_async(lambda: agent.evaluations > 1)
    assert agent.evaluations == 2


async def test_sources_that_are_read_together_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    # Even if the two readings end far apart: the evaluation waits for the end of the agent.
    monkeypatch.setattr(agent_module, "_TOGETHER", NEVER)
    agent = new_agent(Scripted("memory", low), Scripted("clock"))
    await asyncio.gather(agent.run(), until(agent, lambda: not list(agent.unread_sources())))
    assert agent.evaluations == 1
    assert log.messages() == ["finding raised", "node health changed"]
    assert agent.verdict is not None
    assert agent.verdict.health is Health.SUSPECT
    assert (list(agent.unread_sources()), agent.ages()) == ([], {"memory": 0.0, "clock": 0.0})


async def test_a_hung_source_delays_no_other() -> None:
    released = threading.Event()

    def stuck(_: Machine) -> Iterator[Observation]:
        released.wait()
        yield from ()

    agent = new_agent(Scripted("memory", low), Scripted("stuck", stuck, deadline=0.5))
    try:
        await asyncio.gather(agent.run(), until(agent, lambda: agent.verdict and agent.verdict.read_failures))
    finally:
        released.set()
    assert agent.verdict is not None
    assert [finding.check for finding in agent.verdict.findings] == ["check-0"]
    assert [(failure.source, failure.reason) for failure in agent.verdict.read_failures] == [
        ("stuck", "gave no answer within 0.5 s")
    ]


async def test_an_error_of_the_pipeline_is_logged_and_the_agent_continues(
    monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    agent = new_agent(Scripted("memory", low))
    failing: Any = lambda *_: 1 / 0  # noqa: E731
    monkeypatch.setattr(agent._pipeline, "evaluate", failing)

    async def again() -> None:
        await until_async(lambda: log.lines)
        agent.evaluate()
        monkeypatch.undo()
        agent.read("memory")

    await asyncio.gather(agent.run(), again(), until(agent, lambda: agent.verdict))
    assert log.lines[0]["error"] == "ZeroDivisionError: division by zero"
    assert log.messages()[1:] == ["finding raised", "node health changed"]


async def test_a_requested_round_is_evaluated_at_once_and_does_not_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Scripted("kmsg")
    agent = new_agent(Scripted("memory", low), log)

    async def ask() -> None:
        await until_async(lambda: not list(agent.unread_sources()) and agent._evaluation is None)
        monkeypatch.setattr(agent_module, "_TOGETHER", NEVER)
        before = agent.evaluations
        agent.read("kmsg", together=0.0)
        assert agent.is_reading("kmsg")
        agent.read("kmsg", together=0.0)
        await until_async(lambda: log.rounds == 2 and agent.evaluations > before)
        agent.stop()

    await asyncio.gather(agent.run(), ask())
    assert log.rounds == 2


async def test_a_thread_that_cannot_be_started_is_a_failed_reading() -> None:
    agent = new_agent(Scripted("memory", low))
    before = threading.stack_size(TOO_LARGE)
    try:
        await asyncio.gather(agent.run(), until(agent, lambda: agent.verdict))
    finally:
        threading.stack_size(before)
    [seen] = agent.latest["memory"].observations
    assert (seen.status, seen.detail) == (
        "failed",
        "no thread can be started (can't start new thread): raise the limit on processes",
    )


async def test_after_a_failed_evaluation_the_data_status_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = new_agent(Scripted("memory", low))

    async def fail() -> None:
        await until_async(lambda: agent.verdict)
        failing: Any = lambda *_: 1 / 0  # noqa: E731
        monkeypatch.setattr(agent._pipeline, "evaluate", failing)
        agent.evaluate()
        agent.stop()

    await asyncio.gather(agent.run(), fail())
    assert agent.verdict is not None
    assert (agent.verdict.health, agent.verdict.data_status) == (Health.SUSPECT, DataStatus.UNKNOWN)


def new_schedule(*intervals: float, offset: float = 0.0) -> SourceSchedule:
    return SourceSchedule(
        [Scripted(f"every-{interval:g}", interval=interval) for interval in intervals], offset
    )


def names(schedule: SourceSchedule, now: float) -> list[str]:
    return [source.name for source in schedule.due(now)]


def test_sources_are_read_at_the_start_and_at_their_intervals() -> None:
    schedule = new_schedule(10, 30)
    assert names(schedule, 1003.0) == ["every-10", "every-30"]
    assert (schedule.next(), names(schedule, 1009.0)) == (1010.0, [])
    assert names(schedule, 1010.0) == ["every-10"]
    assert (schedule.next(), names(schedule, 1020.0)) == (1020.0, ["every-10", "every-30"])


def test_a_missed_reading_is_not_repeated() -> None:
    schedule = new_schedule(10)
    schedule.due(0.0)
    assert [names(schedule, at) for at in (95.0, 96.0, 100.0)] == [["every-10"], [], ["every-10"]]


@given(offset=st.floats(0, 0.99), start=st.floats(0, 1e6))
def test_the_offset_of_a_node_delays_its_rounds(offset: float, start: float) -> None:
    schedule = new_schedule(10, offset=offset)
    schedule.due(start)
    at = schedule.next()
    assert 0 < at - start <= 10.001
    assert names(schedule, at) == ["every-10"]
    assert schedule.next() - at == pytest.approx(10)


@given(offset=st.floats(0, 0.99), start=st.integers(0, 1_000_000))
def test_long_intervals_are_read_with_short_ones(offset: float, start: int) -> None:
    schedule = new_schedule(10, 30, offset=offset)
    schedule.due(start)
    rounds = [names(schedule, schedule.next()) for _ in range(9)]
    assert sum(len(together) == 2 for together in rounds) == 3
    assert all(together[0] == "every-10" for together in rounds)


def test_without_sources_nothing_is_due() -> None:
    schedule = new_schedule()
    assert (schedule.due(0.0), schedule.next()) == ([], inf)


def test_ages() -> None:
    assert source_ages({"nvml": 90.0}, 100.0) == {"nvml": 10.0}
