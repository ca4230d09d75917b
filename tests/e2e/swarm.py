"""Agents of thousands of Nodes in one process, which speak as the real one does: over TLS, with a token of their own
that verifies, on a connection to each aggregator that is kept, and with a heartbeat every ten seconds.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop
from msgspec.structs import replace

from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.wire.digest import digest
from nodeguard.wire.encoding import decode_reply, encode
from nodeguard.wire.report import (
    VERSION,
    Heartbeat,
    Message,
    Report,
    ReportedEvidence,
    ReportedFinding,
    ReportedPassing,
)
from tests.e2e.fleet import HOST, Aggregator, Fleet
from tests.e2e.minted import Mint
from tests.waiting import PATIENCE, until

# Seconds between heartbeats.
_BEAT = 10.0

# Handshakes at a time, as an aggregator takes few of strangers of one address.
_GREETING = 48

SLOT = "gpu/0000:1b:00"

Word = TypeVar("Word")


def fault(check: str, *seen_by: str, age: float = 0.0) -> ReportedFinding:
    """A fatal finding of a check, of so many seconds ago, that these sources speak for."""
    return ReportedFinding(
        check=check,
        target=SLOT,
        health=Health.FATAL,
        component="GPU-1",
        action=Action.RESET_GPU,
        age=age,
        message=f"{check} at {SLOT}",
        evidence=tuple(ReportedEvidence(source, "said so") for source in seen_by or ("kmsg",)),
        family="gpu-bus",
    )


def in_order(checks: Iterable[str]) -> Report:
    """What an agent says where all is well."""
    return Report(
        version=VERSION,
        node="any",
        boot_id="boot-1",
        sequence=0,
        health=Health.OK,
        data_status=DataStatus.FRESH,
        passing=(ReportedPassing(tuple(checks), (SLOT,)),),
    )


class _Agent:
    """What one agent has to say. turn: rises with each change of it."""

    def __init__(self, name: str, token: str, report: Report) -> None:
        self.name = name
        self.head = (
            f"POST /v1/messages HTTP/1.1\r\nHost: aggregator\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self.report = report
        self.turn = 0
        self.since = time.monotonic()
        self.sequence = 0
        self.lines: list[_Line] = []

    def say(self, report: Report) -> None:
        self.report = replace(report, node=self.name, digest=digest(replace(report, node=self.name)))
        self.turn += 1
        self.since = time.monotonic()
        for line in self.lines:
            line.news.set()

    def message(self, *, full: bool) -> bytes:
        self.sequence += 1
        said: Message
        if full:
            said = replace(self.report, sequence=self.sequence, age=time.monotonic() - self.since)
        else:
            said = Heartbeat(
                version=VERSION,
                node=self.name,
                boot_id=self.report.boot_id,
                sequence=self.sequence,
                digest=self.report.digest,
            )
        body = encode(said)
        return self.head + str(len(body)).encode() + b"\r\n\r\n" + body


class _Line(asyncio.Protocol):
    """An agent's connection to one aggregator. told: the turn that was heard there last, -1 for none."""

    def __init__(self, agent: _Agent, swarm: Swarm, number: str) -> None:
        self.news = asyncio.Event()
        self.told = -1
        self._agent = agent
        self._swarm = swarm
        self._number = number
        self._came = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None

    async def run(self) -> None:
        """Speak until cancelled."""
        try:
            while True:
                with suppress(OSError, TimeoutError):
                    await self._connect()
                    while True:
                        await self._rest()
                        await self._speak(full=self.told != self._agent.turn)
                self._drop()
                self.told = -1
                self._swarm.broken += 1
                await asyncio.sleep(random.uniform(0.2, 1.0))
        finally:
            self._drop()
            self.told = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end or self._answer is None or self._answer.done():
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._came = b""
        if head.startswith(b"HTTP/1.1 200"):
            self._answer.set_result(body)
        else:
            self._swarm.refused.append((self._agent.name, body.decode()))
            self._answer.set_exception(ConnectionRefusedError(body.decode()))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())
        self._transport = None

    async def _connect(self) -> None:
        swarm = self._swarm
        async with swarm.greeting, asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().create_connection(
                lambda: self, self._number, swarm.port, ssl=swarm.trust, server_hostname=swarm.host
            )
            await self._speak(full=True)

    async def _rest(self) -> None:
        """Until there is something to say."""
        if self.told == self._agent.turn:
            self.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT * random.uniform(0.8, 1.0)):
                    await self.news.wait()

    async def _speak(self, *, full: bool) -> None:
        turn = self._agent.turn
        if self._transport is None:
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._agent.message(full=full))
        async with asyncio.timeout(PATIENCE):
            reply, _ = decode_reply(await self._answer)
        self.told = -1 if reply.resend else turn if full else self.told
        self._swarm.messages += 1

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._came = b""


class Swarm:
    """The agents of Nodes, by name. Its words may be called from any thread but its own.

    numbers: where aggregators listen, at one port. refused: what was not taken, and why. broken: connections that
    broke off. messages: that were heard.
    """

    def __init__(
        self,
        tokens: Mapping[str, str],
        report: Report,
        numbers: Iterable[str],
        port: int,
        ca: Path,
        host: str,
    ) -> None:
        self.port, self.host = port, host
        self.trust = ssl.create_default_context(cafile=str(ca))
        self.refused: list[tuple[str, str]] = []
        self.broken = self.messages = 0
        self._numbers = list(numbers)
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.greeting = self._in_loop(asyncio.Semaphore, _GREETING)
        self._agents = {name: _Agent(name, token, report) for name, token in tokens.items()}
        self._in_loop(self._prepare, report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.silence()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def speak(self) -> None:
        """Have all agents run."""
        self._in_loop(self._begin)

    def silence(self, names: Iterable[str] | None = None) -> None:
        """Some agents are gone at once, all where none is named."""
        self._run(self._end(list(self._agents if names is None else names)))

    def say(self, words: Mapping[str, Report]) -> None:
        """Have agents say something else from now on, as soon as they can."""
        self._in_loop(self._say, words)

    @property
    def behind(self) -> int:
        """How many connections of agents that run have not told yet what there is to tell."""
        agents = [self._agents[name] for name in list(self._tasks)]
        return sum(line.told != agent.turn for agent in agents for line in agent.lines)

    def heard(self) -> float:
        """Wait until all has been told. Gives the seconds that took."""
        begin = time.monotonic()
        until(
            lambda: not self.behind, lambda: f"{self.behind} are not heard: {self.refused[-3:]}", every=0.02
        )
        return time.monotonic() - begin

    def _prepare(self, report: Report) -> None:
        for agent in self._agents.values():
            agent.say(report)
            agent.lines = [_Line(agent, self, number) for number in self._numbers]

    def _say(self, words: Mapping[str, Report]) -> None:
        for name, report in words.items():
            self._agents[name].say(report)

    def _begin(self) -> None:
        for name in self._agents.keys() - self._tasks.keys():
            lines = self._agents[name].lines
            self._tasks[name] = [self._loop.create_task(line.run()) for line in lines]

    async def _end(self, names: list[str]) -> None:
        ended = [task for name in names for task in self._tasks.pop(name, ())]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await asyncio.sleep(0.1)

    def _in_loop(self, what: Callable[..., Word], *words: Any) -> Word:
        async def call() -> Word:
            return what(*words)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, Word]) -> Word:
        done: Future[Word] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(PATIENCE)


def swarm(fleet: Fleet, uids: Mapping[str, str], report: Report, *aggregators: Aggregator) -> Swarm:
    """Agents of Nodes, by name and uid, that tell these aggregators the same at first, once they `speak`."""
    mint = Mint(fleet.cluster)
    tokens = {name: mint.token(name, uid) for name, uid in uids.items()}
    return Swarm(tokens, report, [one.number for one in aggregators], fleet.port, fleet.ca, HOST)


def sick(healthy: Report, *findings: ReportedFinding) -> Report:
    """The same node with findings; nothing is proven of it."""
    return replace(healthy, health=Health.FATAL, findings=findings, passing=())
