from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from nodeguard.agent.agent import Agent
from nodeguard.agent.instructions import FindingClearer
from nodeguard.model.check import EventOccurred
from nodeguard.model.observation import Event, Observation
from nodeguard.sources.machine import Machine
from nodeguard.wire.instruction import ClearFinding
from tests.agent.scene import Scripted
from tests.pipeline.test_pipeline import LOW, judgement
from tests.sources.fake_machine import FakeMachine
from tests.waiting import PATIENCE


class Node:
    """An agent with an event in its log, and a level that is too low."""

    def __init__(self) -> None:
        self.judgement = judgement(LOW, EventOccurred("a.happened"))
        machine: Any = FakeMachine()
        self.is_logged = False
        sources = [Scripted("kmsg", self.log), Scripted("memory", self.level)]
        self.agent = Agent(machine, sources, self.judgement, 0.0)

    def log(self, machine: Machine) -> Iterator[Observation]:
        if not self.is_logged:
            yield Observation("kmsg", "node", events=(Event("a.happened", machine.now().mono, "it broke"),))
        self.is_logged = True

    def level(self, _: Machine) -> Iterator[Observation]:
        yield Observation("memory", "node", signals={"a.level": 3})

    def checks(self) -> list[str]:
        return sorted(finding.check for finding in self.agent.verdict.findings) if self.agent.verdict else []


async def test_an_event_is_cleared_at_once_and_a_reading_is_not() -> None:
    node = Node()
    asked = FindingClearer(node.agent, node.judgement)
    running = asyncio.ensure_future(node.agent.run())
    async with asyncio.timeout(PATIENCE):
        answer = await asked.carry_out(ClearFinding("1", "check-1", "node", by="alice"))
    assert answer.done
    assert node.checks() == ["check-0"]
    for check in ("check-0", "no-such-check"):
        assert not (await asked.carry_out(ClearFinding("2", check, "node"))).done
    assert node.checks() == ["check-0"]
    node.agent.stop()
    await running
