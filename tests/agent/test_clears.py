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
    """An agent that was told of an event, and reads a level that is too low."""

    def __init__(self) -> None:
        self.judgement = judgement(LOW, EventOccurred("a.happened"))
        machine: Any = FakeMachine()
        self.told = False
        sources = [Scripted("kmsg", self.log), Scripted("memory", self.level)]
        self.agent = Agent(machine, sources, self.judgement, 0.0)

    def log(self, machine: Machine) -> Iterator[Observation]:
        if not self.told:
            yield Observation("kmsg", "node", events=(Event("a.happened", machine.now().mono, "it broke"),))
        self.told = True

    def level(self, _: Machine) -> Iterator[Observation]:
        yield Observation("memory", "node", signals={"a.level": 3})

    def found(self) -> list[str]:
        return sorted(one.check for one in self.agent.verdict.findings) if self.agent.verdict else []


async def test_what_was_heard_is_over_at_once_and_what_is_read_stays() -> None:
    node = Node()
    asked = FindingClearer(node.agent, node.judgement)
    running = asyncio.ensure_future(node.agent.run())
    async with asyncio.timeout(PATIENCE):
        answer = await asked.carry_out(ClearFinding("1", "check-1", "node", by="alice"))
    assert answer.done
    assert node.found() == ["check-0"]
    for check in ("check-0", "no-such-check"):
        assert not (await asked.carry_out(ClearFinding("2", check, "node"))).done
    assert node.found() == ["check-0"]
    node.agent.stop()
    await running
