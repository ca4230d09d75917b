"""Limits on the connections of the ingest server."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from tests.aggregator.ingest.scene import (
    LONG_TIMEOUTS,
    agent,
    connected,
    exchange,
    head,
    heartbeat,
    serving,
    serving_context,
    tokens,
)
from tests.aggregator.issuer import Issuer
from tests.controlplane.certificates import Authority
from tests.logs import LogLines
from tests.waiting import PATIENCE, PROMPTLY, until


def test_the_oldest_unauthenticated_connection_is_closed_for_an_agent(issuer: Issuer, tmp_path: Path) -> None:
    limits = IngestLimits(unauthenticated=3, connections=5)
    with serving(lambda: tokens(issuer), limits=limits) as served:
        good = agent(served, tmp_path / "token", issuer.token())
        assert good.post(heartbeat()).status == 200
        with connected(served) as first, connected(served), connected(served), connected(served):
            assert exchange(first) == b""
            late = agent(served, tmp_path / "late", issuer.token("node-b"))
            assert late.post(heartbeat("node-b")).status == 200
            assert good.post(heartbeat()).status == 200
        good.close()
        late.close()


@pytest.mark.slow
def test_the_connections_of_one_credential_are_limited(issuer: Issuer, tmp_path: Path) -> None:
    with serving(lambda: tokens(issuer)) as served, ExitStack() as stack:
        other = agent(served, tmp_path / "other", issuer.token("node-b"))
        assert other.post(heartbeat("node-b")).status == 200
        agents = [agent(served, tmp_path / "token", issuer.token()) for _ in range(50)]
        assert {transport.post(heartbeat()).status for transport in agents} == {200}
        until(lambda: served.ingest.connections == IngestLimits().connections_per_node + 1)
        assert agents[0].post(heartbeat()).status == 200
        assert other.post(heartbeat("node-b")).status == 200
        for transport in (*agents, other):
            transport.close()
        until(lambda: served.ingest.connections == 0)

        request = head(1000, f"Authorization: Bearer {issuer.token()}\r\n")
        for _ in range(IngestLimits().connections_per_node):
            stack.enter_context(connected(served)).sendall(request)
        until(lambda: served.ingest.connections == IngestLimits().connections_per_node)
        until(lambda: b"429" in exchange(stack.enter_context(connected(served)), request))
        assert served.refused[-1] == ("node-a", "too-many-connections")


def test_a_rejected_connection_is_counted_and_logged(issuer: Issuer, tmp_path: Path, log: LogLines) -> None:
    with serving(lambda: tokens(issuer), limits=IngestLimits(connections=1)) as served:
        transport = agent(served, tmp_path / "token", issuer.token())
        assert transport.post(heartbeat()).status == 200
        with connected(served) as sock:
            assert exchange(sock) == b""
        transport.close()
        until(lambda: served.ingest.endpoint.connection_errors["limit-reached"] == 1)
        until(log.text)
        assert log.text()[0].startswith(
            "WARNING connection rejected address=127.0.0.1 "
            "reason=the limit on connections of this aggregator is reached: "
        )


SHORT_TIMEOUTS = IngestLimits(header_timeout=0.3, body_timeout=0.3, idle_timeout=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [b"", b"POST /v1/mess", head(1000)[:-2], head(1000), head(1000) + b"{", head(len(heartbeat())) + heartbeat()]
)  # fmt: skip
def test_a_connection_is_closed_at_its_timeout(first: bytes) -> None:
    with (
        serving(lambda: InsecureAuthenticator("127.0.0.1"), limits=SHORT_TIMEOUTS) as served,
        connected(served) as sock,
    ):
        began = time.monotonic()
        exchange(sock, first)
        assert 0.2 < time.monotonic() - began < PROMPTLY
        until(lambda: served.ingest.connections == 0)
        assert served.ingest.endpoint.connection_errors["timeout"] == 1


def test_a_slow_stream_of_bytes_does_not_extend_the_timeout() -> None:
    with (
        serving(lambda: InsecureAuthenticator("127.0.0.1"), limits=SHORT_TIMEOUTS) as served,
        connected(served) as sock,
    ):
        began = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() < began + PATIENCE:
                sock.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < PROMPTLY
        assert served.ingest.connections == 0


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 100, b""]
)
def test_a_failed_handshake_is_counted_and_not_logged(
    authority: Authority, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    context = serving_context(authority)
    with serving(lambda: InsecureAuthenticator("127.0.0.1"), context) as served:
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        with connected(served) as sock:
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            exchange(sock)
        until(lambda: served.ingest.endpoint.connection_errors["handshake-failed"] == 1)
        until(lambda: served.ingest.connections == 0)
    assert caplog.text == ""


@pytest.mark.slow
def test_stalled_handshakes_do_not_block_agents(issuer: Issuer, authority: Authority, tmp_path: Path) -> None:
    context = serving_context(authority)
    with serving(lambda: tokens(issuer), context, LONG_TIMEOUTS) as served, ExitStack() as stalled:
        for _ in range(100):
            stalled.enter_context(connected(served))
        transport = agent(served, tmp_path / "token", issuer.token(), authority.certificate)
        assert transport.post(heartbeat(), PROMPTLY).status == 200
        transport.close()


def test_a_refused_request_leaves_its_connection_usable(issuer: Issuer) -> None:
    """The rest of its body arrives after the response, and is not parsed as another request."""
    limits = IngestLimits(header_timeout=0.5, idle_timeout=30.0)
    with serving(lambda: tokens(issuer), limits=limits) as served, connected(served) as sock:
        sock.sendall(head(len(heartbeat())))
        assert b"401" in sock.recv(65536)
        sock.sendall(heartbeat())
        with connected(served) as idle:
            assert exchange(idle) == b"", "it is closed at the header timeout"
        sock.sendall(head(len(heartbeat()), f"Authorization: Bearer {issuer.token()}\r\n") + heartbeat())
        assert b"200 OK" in sock.recv(65536)
        assert served.ingest.endpoint.connection_errors["timeout"] == 1, "the idle connection"


def test_a_handshake_that_does_not_begin_is_closed_at_its_timeout(authority: Authority) -> None:
    context = serving_context(authority)
    with (
        serving(lambda: InsecureAuthenticator("127.0.0.1"), context, SHORT_TIMEOUTS) as served,
        connected(served) as sock,
    ):
        began = time.monotonic()
        assert exchange(sock) == b""
        assert time.monotonic() - began < PROMPTLY
        until(lambda: served.ingest.connections == 0)
