"""An agent's reporting in virtual time, and faulty receivers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random

from msgspec.structs import replace

from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue, DeliveryState, Spool
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.agent.reporting.http1 import DEADLINE, HttpResponse, HttpsTransport, Transport
from nodeguard.agent.reporting.sender import Sender
from nodeguard.model.instant import Instant
from nodeguard.wire.report import InstructionResult, Report
from nodeguard.wire.report_builder import build_report
from tests.agent.reporting.receiver import TLS, Receiver
from tests.waiting import until_async
from tests.wire.scene import FACTS, NOW, finding, verdict


class Killed(Exception):  # noqa: N818 - no error of the agent
    """The agent was killed."""


@dataclass
class Deadly:
    """A transport: after its response the agent may be killed."""

    transport: Transport
    kills: Callable[[], bool]
    patience: float = DEADLINE
    name: str = "receiver"

    async def post(self, body: bytes, timeout: float) -> HttpResponse:
        response = await self.transport.post(body, min(timeout, self.patience))
        if self.kills():
            raise Killed
        return response

    def end_by(self, deadline: float) -> None:
        self.transport.end_by(deadline)

    def close(self) -> None:
        self.transport.close()


@dataclass
class Agent:
    """An agent in virtual time, with real connections. state: as stored. pool: that sends; None for `turn`."""

    path: Path
    addresses: list[str]
    kills: Callable[[], bool] = lambda: False
    silent: str = ""
    now: Instant = NOW
    offered: list[str] = field(default_factory=list)
    carried_out: list[str] = field(default_factory=list)
    state: DeliveryState = field(default_factory=DeliveryState)
    pool: EndpointPool | None = None

    def __post_init__(self) -> None:
        (self.path / "token").write_text("secret")
        self.start()

    def start(self) -> None:
        self.queue = DeliveryQueue(self.state)
        self.senders = [
            Sender(
                Deadly(self.transport(address), self.kills, 0.02 if address == self.silent else DEADLINE),
                self.queue,
                Random(7).random,
            )
            for address in self.addresses
        ]

    def transport(self, address: str) -> Transport:
        return HttpsTransport(address, TokenFile(str(self.path / "token")), str(TLS / "ca.pem"))

    async def close(self) -> None:
        for sender in self.senders:
            sender.transport.close()
        await asyncio.sleep(0)

    @property
    def spool(self) -> Spool:
        return self.queue.state.spool

    def write(self) -> None:
        self.state = self.queue.state
        self.queue.stored = self.state.inbox.done

    def offer(self, *checks: str, message: str = "") -> None:
        report = build_report(
            verdict(*(finding(check, message=message) for check in checks)), self.now, FACTS
        )
        if not self.offered or self.offered[-1] != report.digest:
            self.offered.append(report.digest)
        is_change = self.queue.offer(report, self.now)
        self.write()
        if is_change and self.pool is not None:
            self.pool.wake()

    async def turn(self) -> float:
        """Let every sender send once, and carry out the instructions. A killed agent is started again."""
        waits = await asyncio.gather(*(self.turn_one(sender) for sender in self.senders))
        if -inf in waits:
            await self.close()
            self.start()
            return 0.1
        for instruction in self.queue.take_instructions():
            self.carried_out.append(instruction.id)
            self.queue.record_result(InstructionResult(instruction.id, done=True))
        self.write()
        return min(waits)

    async def turn_one(self, sender: Sender) -> float:
        try:
            return await sender.send_due(lambda: self.now)
        except Killed:
            return -inf

    def pass_by(self, seconds: float) -> None:
        self.now = replace(self.now, wall=self.now.wall + seconds, mono=self.now.mono + seconds)

    async def run(self, seconds: float) -> None:
        end = self.now.mono + seconds
        while self.now.mono < end:
            self.pass_by(min(max(await self.turn(), 0.001), end - self.now.mono))


def digests(applied: list[Report]) -> list[str]:
    """Return the digests of applied reports, without repetitions."""
    return [
        report.digest
        for at, report in enumerate(applied)
        if at == 0 or applied[at - 1].digest != report.digest
    ]


@contextmanager
def black_hole() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/"


async def seconds_until(condition: Callable[[], object]) -> float:
    """Wait until a condition holds, and return the seconds that took."""
    began = time.monotonic()
    await until_async(condition, every=0.002)
    return time.monotonic() - began


FAULTS = ["lose request", "lose reply", "late", "duplicate", "garble", "garble request", "truncate", "another",
          "busy", "close", "close silently", "not HTTP"]  # fmt: skip


def faulty(receiver: Receiver, random: Random) -> None:
    receiver.fault = lambda: random.choice(FAULTS) if random.random() < 0.5 else ""
