"""An agent with all that is around it: pages, memory, reports and instructions, in one loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue, DeliveryState
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.agent.reporting.http1 import HttpsTransport
from nodeguard.agent.reporting.reporter import Reporter, node_facts
from nodeguard.agent.service import Service
from nodeguard.agent.state import capture_state, decode_state
from nodeguard.agent.state_file import StateFile
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.observation import Observation
from nodeguard.sources.machine import LaneHangs, Machine
from nodeguard.wire.instruction import ClearFinding
from nodeguard.worker.lane import filesystem_lane
from tests.agent.reporting.receiver import Receiver, closed_port, receiving
from tests.agent.scene import Scripted
from tests.pipeline.test_pipeline import LOW, judgement
from tests.sources.fake_machine import FakeMachine
from tests.waiting import PROMPTLY, until_async

pytestmark = pytest.mark.usefixtures("patient_end")


class Node:
    """A service of one source, whose level is set by the test."""

    def __init__(
        self,
        path: Path,
        receiver: Receiver | None,
        post: DeliveryState | None = None,
        lost: tuple[str, float] = ("", 0.0),
    ) -> None:
        self.level = 3
        self.carried: list[str] = []
        machine: Any = FakeMachine()
        self.source = Scripted("memory", self.read)
        judge = judgement(LOW)
        self.agent = Agent(machine, [self.source], judge, 0.0)
        mailbox = DeliveryQueue(post)
        (path / "token").write_text("secret")
        way = HttpsTransport(receiver.address, TokenFile(str(path / "token"))) if receiver else None
        endpoints = EndpointPool([way], mailbox, Random(7).random) if way else None
        self.reporter = Reporter(mailbox, node_facts("node-1", Catalogue()), {ClearFinding: self.carry})
        file = StateFile(str(path / "state"), filesystem_lane())
        remember = lambda instant: capture_state(judge.state, instant, LaneHangs())  # noqa: E731
        self.service = Service(self.agent, self.reporter, remember, file, lost, endpoints)

    def read(self, _: Machine) -> Iterator[Observation]:
        yield Observation("memory", "node", signals={"a.level": self.level})

    async def carry(self, one: ClearFinding) -> InstructionOutcome:
        self.carried.append(one.id)
        return InstructionOutcome(done=True, message="cleared")

    def own(self, signal: str) -> str:
        told = self.agent.latest.get("agent")
        return str(told.observations[0].signals[signal]) if told else ""

    async def run(self) -> Verdict | None:
        return await self.service.run("127.0.0.1", 0, once=False)


def checks(receiver: Receiver) -> list[list[str]]:
    return [[found.check for found in one.findings] for one in receiver.applied]


async def test_what_is_found_is_told_and_remembered_and_the_end_is_told_too(tmp_path: Path) -> None:
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: checks(receiver) == [["check-0"]])
        node.level = 7
        node.agent.read("memory", together=0.0)
        await until_async(lambda: checks(receiver) == [["check-0"], []])
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PROMPTLY):
            await running
        assert [one.leaving for one in receiver.applied] == [False, False, True]
    memory = decode_state((tmp_path / "state" / "state").read_bytes())
    assert memory.logged == node.agent.logged
    assert memory.delivery.digest == receiver.applied[-1].digest
    assert len(memory.delivery.spool) == 0


async def test_a_transition_that_nobody_heard_is_heard_after_a_restart_and_only_once(tmp_path: Path) -> None:
    nobody = Receiver()
    nobody.address = f"http://127.0.0.1:{closed_port()}/"
    node = Node(tmp_path, nobody)
    running = asyncio.ensure_future(node.run())
    await until_async(lambda: len(node.reporter.queue.state.spool) == 1)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    memory = decode_state((tmp_path / "state" / "state").read_bytes())
    with receiving() as receiver:
        again = Node(tmp_path, receiver, memory.delivery)
        running = asyncio.ensure_future(again.run())
        await until_async(lambda: receiver.applied and len(again.reporter.queue.state.spool) == 0)
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert len({one.digest for one in receiver.applied}) == 1
        assert [one.leaving for one in receiver.applied][-1]


async def test_an_instruction_is_acknowledged_once_what_it_did_is_on_the_disk(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.instructions["i-1"] = ClearFinding("i-1", "check-0", "node")
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: node.carried)
        await until_async(lambda: node.reporter.queue.stored == ("i-1",))
        assert decode_state((tmp_path / "state" / "state").read_bytes()).delivery.inbox.done == ("i-1",)
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert receiver.instructions == {}
        assert node.carried == ["i-1"]


async def test_what_a_person_asks_for_is_on_the_disk_when_the_answer_comes(tmp_path: Path) -> None:
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: checks(receiver))
        node.reporter.queue.receive([ClearFinding("i-1", "check-0", "node")])
        answer = await node.service.carry_out(ClearFinding("local", "check-0", "node"))
        assert (answer.done, answer.message) == (True, "cleared")
        assert decode_state((tmp_path / "state" / "state").read_bytes()).delivery.inbox.done == ("i-1",)
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def test_a_memory_that_was_lost_is_told_for_a_day_over_restarts(tmp_path: Path) -> None:
    node = Node(tmp_path, None, lost=("/state/state is truncated", FakeMachine().now().wall - 86_399.5))
    running = asyncio.ensure_future(node.run())
    await until_async(lambda: node.own("agent.state_load_error") == "/state/state is truncated")
    await until_async(lambda: node.own("agent.state_load_error") == "none")
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert decode_state((tmp_path / "state" / "state").read_bytes()).load_error == ""


async def test_a_disk_that_fails_is_told_of_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory")
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: checks(receiver) == [["check-0"]])
        await until_async(
            lambda: "no directory: name another with --state" in node.own("agent.state_save_error")
        )
        os.kill(os.getpid(), signal.SIGTERM)
        await running
