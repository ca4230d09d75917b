"""The ingest server under uvloop in a thread, and agents that report to it with their own transport."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from nodeguard.agent.reporting.credentials import TokenFile
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.aggregator.identity.caller import Authenticator, Caller
from nodeguard.aggregator.identity.signing_keys import SigningKeyring
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.model.finding import Health
from nodeguard.wire.encoding import encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report
from tests.agent.reporting.blocking import BlockingTransport
from tests.aggregator.issuer import ACCOUNT, ISSUER, Issuer
from tests.controlplane.certificates import Authority
from tests.waiting import PATIENCE

# For tests in which the timeout of a slow machine must not end a connection.
LONG_TIMEOUTS = IngestLimits(header_timeout=2 * PATIENCE)

EXPECTED = TokenRequirements(frozenset({ACCOUNT}))

Result = TypeVar("Result")


def heartbeat(node: str = "node-a", sequence: int = 1) -> bytes:
    return encode(Heartbeat(version=VERSION, node=node, boot_id="b", sequence=sequence))


def report(node: str = "node-a", sequence: int = 1) -> bytes:
    return encode(Report(version=VERSION, node=node, boot_id="b", sequence=sequence, health=Health.OK))


@dataclass
class Served:
    """A running server. handle: returns the reply to a message; a test may replace it."""

    loop: asyncio.AbstractEventLoop
    ingest: IngestServer = field(init=False)
    received: list[tuple[Caller, Message]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    handle: Callable[[Caller, Message], Reply] = lambda _, message: Reply(VERSION, message.sequence)
    context: ssl.SSLContext | None = None

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30.0)

    @property
    def port(self) -> int:
        return self.ingest.ports[0]

    @property
    def address(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}/v1/messages"

    def _handle(self, caller: Caller, message: Message) -> Reply:
        self.received.append((caller, message))
        return self.handle(caller, message)

    async def start(self, identity: Callable[[], Authenticator], limits: IngestLimits | None) -> None:
        self.ingest = IngestServer(
            identity(),
            self._handle,
            lambda: self.context,
            limits,
            on_refused=lambda node, error: self.refused.append((node, error.reason)),
        )
        await self.ingest.listen("127.0.0.1", 0)


@contextmanager
def serving(
    identity: Callable[[], Authenticator],
    context: ssl.SSLContext | None = None,
    limits: IngestLimits | None = None,
) -> Iterator[Served]:
    """Run a server on a free port. identity: creates the authenticator, in the server's loop."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    served = Served(loop, context=context)
    try:
        served.run(served.start(identity, limits))
        try:
            yield served
        finally:
            served.run(served.ingest.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def serving_context(authority: Authority) -> ssl.SSLContext:
    """Return the TLS context of a server on 127.0.0.1."""
    pair = authority.issue("server", "127.0.0.1")
    return tls_context(ServingCertificate(pair.certificate.read_text(), pair.key.read_text()))


def tokens(issuer: Issuer) -> TokenAuthenticator:
    """Return an authenticator for the tokens of an issuer."""

    async def fetch() -> tuple[str, bytes]:
        return ISSUER, issuer.document()

    return TokenAuthenticator(EXPECTED, SigningKeyring(fetch), time.monotonic)


def agent(served: Served, path: Path, token: str, ca: Path | None = None) -> BlockingTransport:
    """Return an agent's transport with a token."""
    path.write_text(token)
    return BlockingTransport(served.address, TokenFile(str(path)), str(ca) if ca else None)


@contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    """Open a plain TCP connection, for requests that no agent sends."""
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as sock:
        yield sock


def exchange(sock: socket.socket, *parts: bytes) -> bytes:
    """Send parts of a request, and return what the server sends until it closes the connection."""
    response = b""
    try:
        for part in parts:
            sock.sendall(part)
        while piece := sock.recv(65536):
            response += piece
    except ConnectionError:
        pass
    return response


def head(length: object, headers: str = "") -> bytes:
    """Return the head of a request. headers: further headers, each with its line end."""
    return f"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{headers}\r\n".encode()
