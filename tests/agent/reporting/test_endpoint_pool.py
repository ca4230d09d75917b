"""Replicas behind one name: real connections, and a name service that says what the test says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from nodeguard.agent.reporting import endpoint_pool
from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.agent.reporting.endpoint import ReplicaIps, parse_address
from nodeguard.agent.reporting.endpoint_pool import EndpointPool, NamedEndpoint
from nodeguard.agent.reporting.http1 import HttpsTransport
from tests.agent.reporting.receiver import TLS, Receiver, closed_port, receiving
from tests.agent.reporting.scene import Agent, digests, seconds_until
from tests.logs import LogLines
from tests.waiting import PATIENCE, PROMPTLY, until_async

pytestmark = pytest.mark.usefixtures("patient_end")

ONE, OTHER, THIRD = ("127.0.0.1",), ("127.0.0.2",), ("127.0.0.3",)


class NameService:
    """Says who is behind the one name; hangs or fails as it is told."""

    def __init__(self, *says: ReplicaIps) -> None:
        self.says: tuple[ReplicaIps, ...] = says
        self.wrong: Exception | None = None
        self.free = threading.Event()
        self.free.set()
        self.questions = 0

    def asked(self) -> tuple[ReplicaIps, ...]:
        self.questions += 1
        self.free.wait(PATIENCE)
        if self.wrong is not None:
            raise self.wrong
        return self.says


@asynccontextmanager
async def told(agent: Agent, service: NameService, port: int) -> AsyncIterator[EndpointPool]:
    """The threads of an agent that knows its receivers by a name alone, which their certificates bear."""
    address, token = (
        parse_address(f"https://localhost:{port}/v1/report"),
        TokenFile(str(agent.path / "token")),
    )

    def way(place: ReplicaIps) -> HttpsTransport:
        return HttpsTransport(address.of_replica(place), token, str(TLS / "ca.pem"))

    pool = EndpointPool([], agent.queue, lambda: 1.0, [NamedEndpoint(address.name, service.asked, way)])
    pool.start(lambda: agent.now)
    try:
        yield pool
    finally:
        service.free.set()
        await pool.end(PATIENCE)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name service is asked so often that a test need not wait for it."""
    for name in ("RESOLVE_INTERVAL", "RESOLVE_INTERVAL_FAILING", "RESOLVE_MIN_INTERVAL"):
        monkeypatch.setattr(endpoint_pool, name, 0.02)


def at(place: ReplicaIps, port: int, stack: ExitStack) -> Receiver:
    return stack.enter_context(receiving(tls=True, at=(place[0], port)))


def gone(receiver: Receiver, stack: ExitStack) -> None:
    """Nobody listens any more, and the next message over a kept connection is not heard."""
    receiver.fault = lambda: "lose request"
    stack.close()


def names(pool: EndpointPool) -> list[str]:
    return sorted(name.rpartition(" ")[2] for name in pool.acked_at())


@pytest.mark.usefixtures("often")
async def test_everybody_behind_a_name_is_told_and_followed(tmp_path: Path) -> None:
    port, service = closed_port(), NameService(ONE, OTHER)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack, ExitStack() as short:
        one, other = at(ONE, port, stack), at(OTHER, port, short)
        async with told(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: one.applied and other.applied)
            gone(other, short)
            third = at(THIRD, port, stack)
            service.says = (ONE, THIRD)
            agent.offer("b")
            await until_async(lambda: digests(third.applied)[-1:] == agent.offered[-1:])
            await until_async(lambda: names(pool) == ["127.0.0.1", "127.0.0.3"])
        assert digests(one.applied) == agent.offered
        assert one.applied[-1].leaving
        assert third.applied[-1].leaving
        assert not other.applied[-1].leaving
        assert one.connections == 1


@pytest.mark.usefixtures("often")
async def test_who_hears_is_told_on_while_the_name_service_is_down(tmp_path: Path, log: LogLines) -> None:
    port, service = closed_port(), NameService(ONE)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        one = at(ONE, port, stack)
        async with told(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: one.applied)
            service.wrong = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            await until_async(log.errors)
            before = service.questions
            await until_async(lambda: service.questions > before + 3)
            service.wrong, service.says = None, ()
            before = service.questions
            await until_async(lambda: service.questions > before + 3)
            agent.offer("b")
            await until_async(lambda: digests(one.applied) == agent.offered)
            assert names(pool) == ["127.0.0.1"]
    reason = "its name cannot be resolved (Temporary failure in name resolution): check the address and the name service"
    assert log.errors() == [reason]


async def test_a_name_service_that_hangs_delays_neither_a_change_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_pool, "RESOLVE_INTERVAL_FAILING", 0.02)
    monkeypatch.setattr(endpoint_pool, "RESOLVE_MIN_INTERVAL", 0.02)
    port, service = closed_port(), NameService(ONE)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        one = at(ONE, port, stack)
        async with told(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: one.applied)
            service.free.clear()
            asked = service.questions
            for at_ in range(5):
                agent.offer(f"b{at_}")
                assert await seconds_until(lambda: digests(one.applied) == agent.offered) < PROMPTLY
            assert service.questions <= asked + 1
            began = time.monotonic()
            await pool.end(PATIENCE)
            assert time.monotonic() - began < PROMPTLY
        assert one.applied[-1].leaving


async def test_a_receiver_that_is_lost_makes_the_name_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_pool, "RESOLVE_MIN_INTERVAL", 0.02)
    monkeypatch.setattr(endpoint_pool, "RESOLVE_INTERVAL", 60.0)
    monkeypatch.setattr(endpoint_pool, "RESOLVE_INTERVAL_FAILING", 60.0)
    port, service = closed_port(), NameService(ONE, OTHER)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack, ExitStack() as short:
        one, other = at(ONE, port, stack), at(OTHER, port, short)
        async with told(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: one.applied and other.applied)
            assert service.questions == 1
            gone(other, short)
            service.says = (ONE, THIRD)
            third = at(THIRD, port, stack)
            agent.offer("b")
            await until_async(lambda: third.applied)
            assert service.questions == 2
            assert names(pool) == ["127.0.0.1", "127.0.0.3"]


async def test_while_nobody_is_found_the_name_stands_for_all_and_is_asked_again_soon(
    tmp_path: Path, log: LogLines
) -> None:
    port, service = closed_port(), NameService()
    service.wrong = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        one = at(ONE, port, stack)
        async with told(agent, service, port) as pool:
            agent.offer("a")
            await until_async(log.errors)
            assert list(pool.acked_at().items()) == [(f"https://localhost:{port}", float("-inf"))]
            assert len(agent.spool) == 1
            service.wrong, service.says = None, (ONE,)
            await until_async(lambda: one.applied)


@pytest.mark.usefixtures("often")
async def test_whoever_is_at_a_place_must_bear_the_name(tmp_path: Path, log: LogLines) -> None:
    port, service = closed_port(), NameService(ONE)
    agent = Agent(tmp_path, [])
    address, token = parse_address(f"https://127.0.0.2:{port}/"), TokenFile(str(agent.path / "token"))
    with ExitStack() as stack:
        one = at(ONE, port, stack)
        way = HttpsTransport(address.of_replica(ONE), token, str(TLS / "ca.pem"))
        name = NamedEndpoint(address.name, service.asked, lambda place: way)
        pool = EndpointPool([], agent.queue, lambda: 1.0, [name])
        pool.start(lambda: agent.now)
        agent.offer("a")
        await until_async(log.errors)
        await pool.end(PATIENCE)
        assert "certificate is not trusted" in log.errors()[0]
        assert one.tokens == []


@pytest.mark.usefixtures("often")
async def test_an_error_that_nobody_thought_of_is_told_once_and_survived(
    tmp_path: Path, log: LogLines
) -> None:
    port, service = closed_port(), NameService(ONE)
    service.wrong = RuntimeError("no")
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        one = at(ONE, port, stack)
        async with told(agent, service, port):
            agent.offer("a")
            await until_async(lambda: service.questions > 3)
            service.wrong = None
            await until_async(lambda: one.applied)
    assert log.errors() == ["RuntimeError: no"]


async def test_nothing_is_begun_after_the_end(tmp_path: Path) -> None:
    port, service = closed_port(), NameService(ONE)
    service.free.clear()
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        one = at(ONE, port, stack)
        async with told(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: service.questions)
            await pool.end(PATIENCE)
            service.free.set()
            await until_async(lambda: not any(thread.name == "resolver" for thread in threading.enumerate()))
            assert list(pool.acked_at().values()) == [float("-inf")]
        assert one.connections == 0
