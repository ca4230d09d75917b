"""An agent's reporting in virtual time, and receivers that do it no good."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random

from msgspec.structs import replace

from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.delivery_state import DeliveryQueue, DeliveryState
from nodeguard.agent.reporting.http1 import DEADLINE, HttpResponse, HttpsTransport, Transport
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.spool import Spool
from nodeguard.model.instant import Instant
from nodeguard.wire.report import InstructionResult, Report
from nodeguard.wire.report_builder import build_report
from tests.agent.reporting.receiver import TLS, Receiver
from tests.waiting import until
from tests.wire.scene import FACTS, NOW, finding, verdict


class Killed(BaseException):
    """The agent was killed."""


@dataclass
class Deadly:
    """A transport after whose answer the agent may be killed."""

    way: Transport
    kills: Callable[[], bool]
    patience: float = DEADLINE
    name: str = "receiver"

    def post(self, body: bytes, within: float) -> HttpResponse:
        answer = self.way.post(body, min(within, self.patience))
        if self.kills():
            raise Killed
        return answer

    def hurry(self, until: float) -> None:
        self.way.hurry(until)

    def close(self) -> None:
        self.way.close()


@dataclass
class Agent:
    """An agent in virtual time, with real connections and a thread for each. post: what it has written down."""

    path: Path
    addresses: list[str]
    kills: Callable[[], bool] = lambda: False
    silent: str = ""
    now: Instant = NOW
    said: list[str] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)
    post: DeliveryState = field(default_factory=DeliveryState)

    def __post_init__(self) -> None:
        (self.path / "token").write_text("secret")
        self.start()

    def start(self) -> None:
        self.mailbox = DeliveryQueue(self.post)
        self.senders = [
            Sender(
                Deadly(self.way(one), self.kills, 0.02 if one == self.silent else DEADLINE),
                self.mailbox,
                Random(7).random,
                self.said.append,
            )
            for one in self.addresses
        ]

    def way(self, address: str) -> Transport:
        return HttpsTransport(address, TokenFile(str(self.path / "token")), str(TLS / "ca.pem"))

    def close(self) -> None:
        for one in self.senders:
            one.transport.close()

    @property
    def spool(self) -> Spool:
        return self.mailbox.state.spool

    def write(self) -> None:
        self.post = self.mailbox.state
        self.mailbox.written = self.post.inbox.done

    def offer(self, *checks: str, message: str = "") -> None:
        one = build_report(verdict(*(finding(check, message=message) for check in checks)), self.now, FACTS)
        if not self.offered or self.offered[-1] != one.digest:
            self.offered.append(one.digest)
        self.mailbox.offer(one, self.now)
        self.write()

    def turn(self) -> float:
        """One turn of all at once, and what came back carried out. A kill is followed by a start."""
        with ThreadPoolExecutor(max(1, len(self.senders))) as threads:
            waits = list(threads.map(self.turn_one, self.senders))
        if -inf in waits:
            self.close()
            self.start()
            return 0.1
        for instruction in self.mailbox.take():
            self.carried.append(instruction.id)
            self.mailbox.carried_out(InstructionResult(instruction.id, done=True))
        self.write()
        return min(waits)

    def turn_one(self, sender: Sender) -> float:
        try:
            return sender.turn(lambda: self.now)
        except Killed:
            return -inf

    def pass_by(self, seconds: float) -> None:
        self.now = replace(self.now, wall=self.now.wall + seconds, mono=self.now.mono + seconds)

    def run(self, seconds: float) -> None:
        end = self.now.mono + seconds
        while self.now.mono < end:
            self.pass_by(min(max(self.turn(), 0.001), end - self.now.mono))


def digests(applied: list[Report]) -> list[str]:
    """What was applied, without what says the same again."""
    return [one.digest for at, one in enumerate(applied) if at == 0 or applied[at - 1].digest != one.digest]


@contextmanager
def black_hole() -> Iterator[str]:
    """The address of somebody who takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/"


def seconds_until(condition: Callable[[], object]) -> float:
    """Wait until a condition holds, and return the seconds that took."""
    began = time.monotonic()
    until(condition, every=0.002)
    return time.monotonic() - began


FAULTS = ["lose request", "lose reply", "late", "duplicate", "garble", "garble request", "truncate", "another",
          "busy", "close", "close silently", "not HTTP"]  # fmt: skip


def faulty(receiver: Receiver, random: Random) -> None:
    receiver.fault = lambda: random.choice(FAULTS) if random.random() < 0.5 else ""
