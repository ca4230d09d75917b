"""An agent with its HTTP server, state file, reports and instructions in one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial
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
    """A service of one source; the test sets its level."""

    def __init__(
        self,
        path: Path,
        receiver: Receiver | None,
        post: DeliveryState | None = None,
        lost: tuple[str, float] = ("", 0.0),
    ) -> None:
        self.level = 3
        self.cleared: list[str] = []
        machine: Any = FakeMachine()
        self.source = Scripted("memory", self.read)
        judge = judgement(LOW)
        self.agent = Agent(machine, [self.source], judge, 0.0)
        queue = DeliveryQueue(post)
        (path / "token").write_text("secret")
        transport = HttpsTransport(receiver.address, TokenFile(str(path / "token"))) if receiver else None
        endpoints = EndpointPool([transport], queue, Random(7).random) if transport else None
        self.reporter = Reporter(queue, node_facts("node-1", Catalogue()), {ClearFinding: self.clear})
        file = StateFile(str(path / "state"), filesystem_lane())
        capture = lambda instant: capture_state(judge.state, instant, LaneHangs())  # noqa: E731
        self.service = Service(self.agent, self.reporter, capture, lambda _: (), file, lost, endpoints)

    def read(self, _: Machine) -> Iterator[Observation]:
        yield Observation("memory", "node", signals={"a.level": self.level})

    async def clear(self, instruction: ClearFinding) -> InstructionOutcome:
        self.cleared.append(instruction.id)
        return InstructionOutcome(done=True, message="cleared")

    def own(self, signal: str) -> str:
        reading = self.agent.latest.get("agent")
        return str(reading.observations[0].signals[signal]) if reading else ""

    def is_own(self, signal: str, value: str) -> bool:
        return self.own(signal) == value

    async def run(self) -> Verdict | None:
        return await self.service.run("127.0.0.1", 0, once=False)


def checks(receiver: Receiver) -> list[list[str]]:
    return [[finding.check for finding in report.findings] for report in receiver.applied]


async def test_findings_are_reported_and_stored_and_the_end_is_reported(tmp_path: Path) -> None:
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: checks(receiver)[-1:] == [["check-0"]])
        node.level = 7
        node.agent.read("memory", together=0.0)
        await until_async(lambda: checks(receiver)[-1] == [])
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PROMPTLY):
            await running
        *earlier, last = [report.leaving for report in receiver.applied]
        assert last
        assert not any(earlier)
    state = decode_state((tmp_path / "state" / "state").read_bytes())
    assert state.logged == node.agent.logged
    assert state.delivery.digest == receiver.applied[-1].digest
    assert len(state.delivery.spool) == 0


async def test_an_open_connection_does_not_delay_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Since Python 3.12.1 it waits for the clients.
    monkeypatch.setattr(asyncio.Server, "wait_closed", lambda _: asyncio.Event().wait())
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: receiver.applied)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PROMPTLY):
            await running
        assert receiver.applied[-1].leaving


async def test_a_spooled_transition_is_reported_once_after_a_restart(tmp_path: Path) -> None:
    unreachable = Receiver()
    unreachable.address = f"http://127.0.0.1:{closed_port()}/"
    node = Node(tmp_path, unreachable)
    running = asyncio.ensure_future(node.run())
    await until_async(lambda: len(node.reporter.queue.state.spool) == 1)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    state = decode_state((tmp_path / "state" / "state").read_bytes())
    with receiving() as receiver:
        restarted = Node(tmp_path, receiver, state.delivery)
        running = asyncio.ensure_future(restarted.run())
        queue = restarted.reporter.queue
        # Before its own first verdict it has no last report.
        await until_async(lambda: receiver.applied and len(queue.state.spool) == 0 and queue.latest)
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert len({report.digest for report in receiver.applied}) == 1
        assert [report.leaving for report in receiver.applied][-1]


async def test_an_instruction_is_acknowledged_after_its_effect_is_stored(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.instructions["i-1"] = ClearFinding("i-1", "check-0", "node")
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: node.cleared)
        await until_async(lambda: node.reporter.queue.stored == ("i-1",))
        assert decode_state((tmp_path / "state" / "state").read_bytes()).delivery.inbox.done == ("i-1",)
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert receiver.instructions == {}
        assert node.cleared == ["i-1"]


async def test_a_local_instruction_is_stored_before_its_response(tmp_path: Path) -> None:
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


async def test_a_lost_state_is_a_signal_for_a_day_over_restarts(tmp_path: Path) -> None:
    lost_at, day = FakeMachine().now().wall, 86_400.0
    for age, signal_value in ((0.0, "/state/state is truncated"), (day, "none")):
        node = Node(tmp_path, None, lost=("/state/state is truncated", lost_at - age))
        running = asyncio.ensure_future(node.run())
        await until_async(partial(node.is_own, "agent.state_load_error", signal_value))
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        stored = decode_state((tmp_path / "state" / "state").read_bytes()).load_error
        assert stored == signal_value.replace("none", "")


async def test_a_failed_disk_is_a_signal_and_the_agent_continues(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory")
    with receiving() as receiver:
        node = Node(tmp_path, receiver)
        running = asyncio.ensure_future(node.run())
        await until_async(lambda: checks(receiver)[-1:] == [["check-0"]])
        await until_async(
            lambda: "no directory: name another with --state" in node.own("agent.state_save_error")
        )
        os.kill(os.getpid(), signal.SIGTERM)
        await running
