"""Replicas behind one name: real connections, and a name service of the test."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from math import isfinite
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
    """Returns the replicas of a name; hangs or fails as the test demands."""

    def __init__(self, *replicas: ReplicaIps) -> None:
        self.replicas: tuple[ReplicaIps, ...] = replicas
        self.error: Exception | None = None
        self.free = threading.Event()
        self.free.set()
        self.resolutions = 0

    def resolve(self) -> tuple[ReplicaIps, ...]:
        self.resolutions += 1
        self.free.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.replicas


@asynccontextmanager
async def reporting(agent: Agent, service: NameService, port: int) -> AsyncIterator[EndpointPool]:
    """Run the pool of an agent with a name as its only address; the certificates have that name."""
    address, token = (
        parse_address(f"https://localhost:{port}/v1/report"),
        TokenFile(str(agent.path / "token")),
    )

    def connect(ips: ReplicaIps) -> HttpsTransport:
        return HttpsTransport(address.of_replica(ips), token, str(TLS / "ca.pem"))

    name = NamedEndpoint(address.name, service.resolve, connect)
    pool = agent.pool = EndpointPool([], agent.queue, lambda: 1.0, [name])
    pool.start(lambda: agent.now)
    try:
        yield pool
    finally:
        service.free.set()
        await pool.end(PATIENCE)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve the name often, so that no test waits for it."""
    for name in ("RESOLVE_INTERVAL", "RESOLVE_INTERVAL_FAILING", "RESOLVE_MIN_INTERVAL"):
        monkeypatch.setattr(endpoint_pool, name, 0.02)


def replica_at(ips: ReplicaIps, port: int, stack: ExitStack) -> Receiver:
    return stack.enter_context(receiving(tls=True, at=(ips[0], port)))


def gone(receiver: Receiver, stack: ExitStack) -> None:
    """Stop listening, and close open connections without a response."""
    receiver.fault = lambda: "lose request"
    stack.close()


def names(pool: EndpointPool) -> list[str]:
    return sorted(name.rpartition(" ")[2] for name in pool.acked_at())


@pytest.mark.usefixtures("often")
async def test_every_replica_behind_a_name_gets_reports(tmp_path: Path) -> None:
    port, service = closed_port(), NameService(ONE, OTHER)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack, ExitStack() as short:
        first, second = replica_at(ONE, port, stack), replica_at(OTHER, port, short)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: first.applied and second.applied)
            gone(second, short)
            third = replica_at(THIRD, port, stack)
            service.replicas = (ONE, THIRD)
            agent.offer("b")
            await until_async(lambda: digests(third.applied)[-1:] == agent.offered[-1:])
            await until_async(lambda: names(pool) == ["127.0.0.1", "127.0.0.3"])
        assert digests(first.applied) == agent.offered
        assert first.applied[-1].leaving
        assert third.applied[-1].leaving
        assert not second.applied[-1].leaving
        assert first.connections == 1


@pytest.mark.usefixtures("often")
async def test_each_present_replica_has_its_policy_on_injected_faults(tmp_path: Path) -> None:
    port, service = closed_port(), NameService(ONE, OTHER)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack, ExitStack() as short:
        first, second = replica_at(ONE, port, stack), replica_at(OTHER, port, short)
        first.injectable = ("gpu-*",)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: first.applied and second.applied)

            def patterns() -> list[tuple[str, ...]]:
                """Return the policy of each replica that has replied."""
                return sorted(reply.patterns for reply in pool.injection_replies() if isfinite(reply.at))

            await until_async(lambda: len(patterns()) == 2)
            assert patterns() == [(), ("gpu-*",)]
            gone(second, short)
            service.replicas = (ONE,)
            agent.offer("b")
            await until_async(lambda: len(patterns()) == 1)
            assert patterns() == [("gpu-*",)]


@pytest.mark.usefixtures("often")
async def test_replicas_get_reports_while_the_name_service_is_down(tmp_path: Path, log: LogLines) -> None:
    port, service = closed_port(), NameService(ONE)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        first = replica_at(ONE, port, stack)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: first.applied)
            service.error = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            await until_async(log.errors)
            before = service.resolutions
            await until_async(lambda: service.resolutions > before + 3)
            service.error, service.replicas = None, ()
            before = service.resolutions
            await until_async(lambda: service.resolutions > before + 3)
            agent.offer("b")
            await until_async(lambda: digests(first.applied) == agent.offered)
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
        first = replica_at(ONE, port, stack)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: first.applied)
            service.free.clear()
            before = service.resolutions
            for at_ in range(5):
                agent.offer(f"b{at_}")
                assert await seconds_until(lambda: digests(first.applied) == agent.offered) < PROMPTLY
            assert service.resolutions <= before + 1
            began = time.monotonic()
            await pool.end(PATIENCE)
            assert time.monotonic() - began < PROMPTLY
        assert first.applied[-1].leaving


async def test_a_lost_replica_causes_a_resolution_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_pool, "RESOLVE_MIN_INTERVAL", 0.02)
    monkeypatch.setattr(endpoint_pool, "RESOLVE_INTERVAL", 60.0)
    monkeypatch.setattr(endpoint_pool, "RESOLVE_INTERVAL_FAILING", 60.0)
    port, service = closed_port(), NameService(ONE, OTHER)
    agent = Agent(tmp_path, [])
    with ExitStack() as stack, ExitStack() as short:
        first, second = replica_at(ONE, port, stack), replica_at(OTHER, port, short)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: first.applied and second.applied)
            assert service.resolutions == 1
            gone(second, short)
            service.replicas = (ONE, THIRD)
            third = replica_at(THIRD, port, stack)
            agent.offer("b")
            await until_async(lambda: third.applied)
            assert service.resolutions == 2
            assert names(pool) == ["127.0.0.1", "127.0.0.3"]


async def test_an_unresolved_name_is_resolved_again_soon(tmp_path: Path, log: LogLines) -> None:
    port, service = closed_port(), NameService()
    service.error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        first = replica_at(ONE, port, stack)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(log.errors)
            assert list(pool.acked_at().items()) == [(f"https://localhost:{port}", float("-inf"))]
            assert len(agent.spool) == 1
            service.error, service.replicas = None, (ONE,)
            await until_async(lambda: first.applied)


@pytest.mark.usefixtures("often")
async def test_a_replica_must_have_the_name_in_its_certificate(tmp_path: Path, log: LogLines) -> None:
    port, service = closed_port(), NameService(ONE)
    agent = Agent(tmp_path, [])
    address, token = parse_address(f"https://127.0.0.2:{port}/"), TokenFile(str(agent.path / "token"))
    with ExitStack() as stack:
        first = replica_at(ONE, port, stack)
        connect = HttpsTransport(address.of_replica(ONE), token, str(TLS / "ca.pem"))
        name = NamedEndpoint(address.name, service.resolve, lambda ips: connect)
        pool = EndpointPool([], agent.queue, lambda: 1.0, [name])
        pool.start(lambda: agent.now)
        agent.offer("a")
        await until_async(log.errors)
        await pool.end(PATIENCE)
        assert "certificate is not trusted" in log.errors()[0]
        assert first.tokens == []


@pytest.mark.usefixtures("often")
async def test_an_unexpected_error_is_logged_once(tmp_path: Path, log: LogLines) -> None:
    port, service = closed_port(), NameService(ONE)
    service.error = RuntimeError("no")
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        first = replica_at(ONE, port, stack)
        async with reporting(agent, service, port):
            agent.offer("a")
            await until_async(lambda: service.resolutions > 3)
            service.error = None
            await until_async(lambda: first.applied)
    assert log.errors() == ["RuntimeError: no"]


async def test_no_task_is_started_after_the_end(tmp_path: Path) -> None:
    port, service = closed_port(), NameService(ONE)
    service.free.clear()
    agent = Agent(tmp_path, [])
    with ExitStack() as stack:
        first = replica_at(ONE, port, stack)
        async with reporting(agent, service, port) as pool:
            agent.offer("a")
            await until_async(lambda: service.resolutions)
            await pool.end(PATIENCE)
            service.free.set()
            await until_async(lambda: not any(thread.name == "resolver" for thread in threading.enumerate()))
            assert list(pool.acked_at().values()) == [float("-inf")]
        assert first.connections == 0
