"""Simulated agents of thousands of Nodes in one process.

Each reports as the real agent does: over TLS, with its own valid token, on a persistent connection to each
aggregator, and with a heartbeat every ten seconds.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar, cast

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
from tests.e2e.bulk_nodes import TokenIssuer
from tests.e2e.fleet import HOST, Aggregator, Fleet
from tests.waiting import PATIENCE, until

# Seconds between heartbeats.
_HEARTBEAT_INTERVAL = 10.0

# Handshakes at a time: an aggregator accepts few unauthenticated connections of one address.
_HANDSHAKES = 48

TARGET = "gpu/0000:1b:00"

Result = TypeVar("Result")


def fatal_finding(check: str, *sources: str, age: float = 0.0) -> ReportedFinding:
    """Return a fatal finding of a check. sources: of its evidence. age: seconds."""
    return ReportedFinding(
        check=check,
        target=TARGET,
        health=Health.FATAL,
        component="GPU-1",
        action=Action.RESET_GPU,
        age=age,
        message=f"{check} at {TARGET}",
        evidence=tuple(ReportedEvidence(source, "test evidence") for source in sources or ("kmsg",)),
        family="gpu-bus",
    )


def healthy_report(checks: Iterable[str]) -> Report:
    """Return the report of a healthy node on which these checks pass."""
    return Report(
        version=VERSION,
        node="any",
        boot_id="boot-1",
        sequence=0,
        health=Health.OK,
        data_status=DataStatus.FRESH,
        passing=(ReportedPassing(tuple(checks), (TARGET,)),),
    )


class _SimulatedAgent:
    """The current report of an agent. revision: increases with each change of the report."""

    def __init__(self, name: str, token: str, report: Report, sent: int) -> None:
        self.name = name
        self.head = (
            f"POST /v1/messages HTTP/1.1\r\nHost: aggregator\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self.report = report
        self.revision = 0
        self.since = time.monotonic()
        self.sequence = sent
        self.connections: list[_Connection] = []

    def set_report(self, report: Report) -> None:
        self.report = report
        self.revision += 1
        self.since = time.monotonic()
        for connection in self.connections:
            connection.changed.set()

    def message(self, *, full: bool) -> bytes:
        self.sequence += 1
        message: Message
        if full:
            message = replace(self.report, sequence=self.sequence, age=time.monotonic() - self.since)
        else:
            message = Heartbeat(
                version=VERSION,
                node=self.name,
                boot_id=self.report.boot_id,
                sequence=self.sequence,
                digest=self.report.digest,
            )
        body = encode(message)
        return self.head + str(len(body)).encode() + b"\r\n\r\n" + body


class _Connection(asyncio.Protocol):
    """An agent's connection to one aggregator. delivered_revision: acknowledged there, -1 for none."""

    def __init__(self, agent: _SimulatedAgent, swarm: Swarm, address: str) -> None:
        self.changed = asyncio.Event()
        self.delivered_revision = -1
        self._agent = agent
        self._swarm = swarm
        self._address = address
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None

    async def run(self) -> None:
        """Report until cancelled, and reconnect after errors."""
        try:
            while True:
                with suppress(OSError, TimeoutError):
                    await self._connect()
                    while not self.is_cut:
                        await self._wait_for_change()
                        await self._send(full=self.delivered_revision != self._agent.revision)
                self._drop()
                self.delivered_revision = -1
                self._swarm.broken += 1
                await asyncio.sleep(random.uniform(0.2, 1.0))
        finally:
            self._drop()
            self.delivered_revision = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or self._answer is None or self._answer.done():
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._received = b""
        if head.startswith(b"HTTP/1.1 200"):
            self._answer.set_result(body)
        else:
            self._swarm.refused.append((self._agent.name, body.decode()))
            self._answer.set_exception(ConnectionRefusedError(body.decode()))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())
        self._transport = None

    @property
    def is_cut(self) -> bool:
        """Whether its aggregator cannot be reached."""
        return self._address in self._swarm.cut_addresses

    async def _connect(self) -> None:
        swarm = self._swarm
        if self.is_cut:
            raise ConnectionRefusedError
        async with swarm.handshakes, asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().create_connection(
                lambda: self, self._address, swarm.port, ssl=swarm.trust, server_hostname=swarm.host
            )
            await self._send(full=True)

    async def _wait_for_change(self) -> None:
        """Wait for a change of the report, or until a heartbeat is due."""
        if self.delivered_revision == self._agent.revision:
            self.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_INTERVAL * random.uniform(0.8, 1.0)):
                    await self.changed.wait()

    async def _send(self, *, full: bool) -> None:
        revision = self._agent.revision
        if self._transport is None:
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._agent.message(full=full))
        async with asyncio.timeout(PATIENCE):
            reply, _ = decode_reply(await self._answer)
        self.delivered_revision = -1 if reply.resend else revision if full else self.delivered_revision
        self._swarm.messages += 1

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._received = b""


class Swarm:
    """The simulated agents of Nodes, by name, in a thread of their own. Methods are for other threads.

    addresses: of aggregators, which listen on one port. sent: messages of each agent before this start: the onsets of an
    agent that has just started may be older than they seem. refused: nodes of which messages were refused, with the
    response. broken: number of broken connections. messages: number of acknowledged messages.
    """

    def __init__(
        self,
        tokens: Mapping[str, str],
        report: Report,
        addresses: Iterable[str],
        port: int,
        ca: Path,
        host: str,
        sent: int = 0,
    ) -> None:
        self.port, self.host = port, host
        self.trust = ssl.create_default_context(cafile=str(ca))
        self.refused: list[tuple[str, str]] = []
        self.broken = self.messages = 0
        self.cut_addresses: frozenset[str] = frozenset()
        self._addresses = list(addresses)
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.handshakes = self._in_loop(asyncio.Semaphore, _HANDSHAKES)
        self._agents = {name: _SimulatedAgent(name, token, report, sent) for name, token in tokens.items()}
        self._in_loop(self._prepare, report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        """Start all agents that do not run."""
        self._in_loop(self._begin)

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Stop agents without a goodbye; all of them by default."""
        self._run(self._end(list(self._agents if names is None else names)))

    def cut(self, *addresses: str) -> None:
        """Keep all agents from these aggregators, and from no others."""
        self.cut_addresses = frozenset(addresses)

    def set_reports(self, reports: Mapping[str, Report]) -> float:
        """Set new reports, by node. The agents send them as soon as they can. Returns the time, in seconds of
        the monotonic clock.
        """
        return self._in_loop(self._set_reports, {name: _of_node(name, of) for name, of in reports.items()})

    @property
    def pending(self) -> int:
        """Number of connections on which the current report is not acknowledged yet."""
        agents = [self._agents[name] for name in list(self._tasks)]
        return sum(
            line.delivered_revision != agent.revision for agent in agents for line in agent.connections
        )

    def wait_until_delivered(self) -> float:
        """Wait until every current report is acknowledged. Returns the seconds that took."""
        begin = time.monotonic()
        until(
            lambda: not self.pending,
            lambda: f"{self.pending} reports are not acknowledged: {self.refused[-3:]}",
            every=0.02,
            progress=lambda: self.pending,
        )
        return time.monotonic() - begin

    def _prepare(self, report: Report) -> None:
        for agent in self._agents.values():
            agent.set_report(_of_node(agent.name, report))
            agent.connections = [_Connection(agent, self, address) for address in self._addresses]

    def _set_reports(self, reports: Mapping[str, Report]) -> float:
        now = time.monotonic()
        for name, report in reports.items():
            self._agents[name].set_report(report)
        return now

    def _begin(self) -> None:
        for name in self._agents.keys() - self._tasks.keys():
            connections = self._agents[name].connections
            self._tasks[name] = [self._loop.create_task(connection.run()) for connection in connections]

    async def _end(self, names: list[str]) -> None:
        ended = [task for name in names for task in self._tasks.pop(name, ())]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await asyncio.sleep(0.1)

    def _in_loop(self, function: Callable[..., Result], *arguments: Any) -> Result:
        async def call() -> Result:
            return function(*arguments)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        done: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(PATIENCE)


def swarm(
    fleet: Fleet, uids: Mapping[str, str], report: Report, *aggregators: Aggregator, sent: int = 0
) -> Swarm:
    """Return agents, not started, that all send the same report to these aggregators. uids: of Nodes, by name.

    sent: see Swarm.
    """
    issuer = TokenIssuer(fleet.cluster)
    tokens = {name: issuer.token(name, uid) for name, uid in uids.items()}
    addresses = [aggregator.address for aggregator in aggregators]
    return Swarm(tokens, report, addresses, fleet.port, fleet.ca, HOST, sent)


@contextmanager
def reporting_swarm(
    fleet: Fleet, uids: Mapping[str, str], report: Report
) -> Iterator[tuple[Aggregator, Swarm]]:
    """Start an aggregator, and agents that all send the same report; it has received all of them."""
    [aggregator] = fleet.add_aggregators(1)
    aggregator.start()
    fleet.distribute_ca()
    with swarm(fleet, uids, report, aggregator) as agents:
        agents.start()
        agents.wait_until_delivered()
        yield aggregator, agents


def _of_node(name: str, report: Report) -> Report:
    """Return the report of a node, with its digest."""
    return replace(report, node=name, digest=digest(replace(report, node=name)))


def faulty_report(healthy: Report, *findings: ReportedFinding) -> Report:
    """Return the report of the same node with findings, and without any passing check."""
    return replace(healthy, health=Health.FATAL, findings=findings, passing=())
