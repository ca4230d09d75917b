"""Memory of an agent's connection in the aggregator, CPU of a new one and of a heartbeat, and delays.

The longest delay is measured while a whole fleet connects at once. The reference is a bare aiohttp handler
without verification and limits, in the same run. Both serve 2,000 connections by TLS under uvloop, each in a
process of its own; the agents are another process. Every connection has a token of its own, which is
verified.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple, cast

import jwt
import uvloop
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.aggregator.identity.signing_keys import SigningKeyring
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.local.rate_limiter import Rate
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat

CONNECTIONS = 2000
BEATS = 20_000
AT_ONCE = 50
ISSUER = "https://kubernetes.default.svc"
ACCOUNT = "nodeguard:nodeguard-agent"

# All connections have one address, and send as fast as possible.
LIMITS = IngestLimits(
    unauthenticated_per_address=CONNECTIONS, connection_rate=Rate(1e6, 1e6), node_rate=Rate(1e6, 1e6)
)


class Server(NamedTuple):
    """A server that runs: its process, and where it listens."""

    pid: int
    port: int

    def memory(self) -> float:
        """KiB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024

    def cpu(self) -> float:
        """Seconds on a core since its start."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9


class Agent(asyncio.Protocol):
    """Sends one message again and again; done is set by each answer."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of the protocol."""
        # uvloop's own transports are of no class of asyncio's.
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Part of the protocol."""
        assert data.startswith(b"HTTP/1.1 200"), data
        self.done.set_result(None)

    async def beat(self) -> None:
        """Send, and wait for the answer."""
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(self.request)
        await self.done


async def serve_ours(here: Path, trust: ssl.SSLContext) -> int:
    """Begin to serve as the aggregator does. Returns the port."""

    async def keys() -> tuple[str, bytes]:
        return ISSUER, (here / "keys").read_bytes()

    keyring = SigningKeyring(keys)
    identity = TokenAuthenticator(TokenRequirements(frozenset({ACCOUNT})), keyring, time.monotonic)
    ingest = IngestServer(
        identity, lambda _, message: Reply(VERSION, message.sequence), lambda: trust, LIMITS
    )
    await keyring.refresh(time.monotonic())
    await ingest.listen("127.0.0.1", 0)
    return ingest.ports[0]


async def serve_bare(_here: Path, trust: ssl.SSLContext) -> int:
    """Begin to serve with nothing but aiohttp. Returns the port."""

    async def answer(request: web.BaseRequest) -> web.Response:
        message = decode_message(await request.read())
        return web.Response(body=encode(Reply(VERSION, message.sequence)), content_type="application/json")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    port: int = runner.addresses[0][1]
    return port


class Lag:
    """The longest delay of the event loop in seconds."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def watch(self) -> None:
        """Measure every few milliseconds."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            self.worst = max(self.worst, time.monotonic() - began - 0.005)


async def serve(name: str, here: Path) -> None:
    """Serve until the end of the input; then print the longest delay."""
    lag = Lag()
    watch = asyncio.create_task(lag.watch())
    trust = tls_context(ServingCertificate((here / "certificate").read_text(), (here / "key").read_text()))
    print(await (serve_ours if name == "nodeguard" else serve_bare)(here, trust), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    watch.cancel()
    print(lag.worst, flush=True)


async def measure(name: str, here: Path, requests: list[bytes], at_once: int) -> None:
    """Print the figures of one server. at_once: how many agents connect, or send, at a time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, name, str(here), stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    server = Server(process.pid, int(await process.stdout.readline()))
    trust = ssl.create_default_context(cafile=str(here / "ca"))
    loop = asyncio.get_running_loop()

    async def connected(request: bytes) -> Agent:
        _, agent = await loop.create_connection(
            lambda: Agent(request), "127.0.0.1", server.port, ssl=trust, server_hostname="127.0.0.1"
        )
        await agent.beat()
        return agent

    first = await asyncio.gather(*(connected(request) for request in requests[:at_once]))
    memory, cpu = server.memory(), server.cpu()
    agents = list(first)
    for at in range(at_once, CONNECTIONS, at_once):
        agents += await asyncio.gather(*(connected(request) for request in requests[at : at + at_once]))
    if at_once == CONNECTIONS:
        process.stdin.close()
        lag = float(await process.stdout.readline())
        print(f"{name:<12}{lag * 1e3:8.1f} ms longest delay of its loop while all connect at once")
        await process.wait()
        return
    new = CONNECTIONS - at_once
    size = (server.memory() - memory) / new
    connection = (server.cpu() - cpu) / new
    cpu = server.cpu()
    for at in range(0, BEATS, AT_ONCE):
        await asyncio.gather(*(agents[(at + offset) % CONNECTIONS].beat() for offset in range(AT_ONCE)))
    beat = (server.cpu() - cpu) / BEATS
    print(
        f"{name:<12}{size:8.1f} KiB a connection   {connection * 1e3:6.2f} ms a new connection   "
        f"{beat * 1e6:6.1f} µs a heartbeat   {server.memory() / 1024:6.1f} MiB in all"
    )
    process.stdin.close()
    await process.wait()


def request(key: rsa.RSAPrivateKey, node: str) -> bytes:
    """Return a heartbeat of a node, with its token."""
    names = {
        "namespace": "nodeguard",
        "node": {"name": node, "uid": f"uid-of-{node}"},
        "pod": {"name": f"agent-{node}", "uid": f"uid-of-agent-{node}"},
    }
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": ["nodeguard"],
        "sub": f"system:serviceaccount:{ACCOUNT}",
        "exp": now + 3600,
        "nbf": now,
        "kubernetes.io": names,
    }
    token = jwt.encode(claims, key, "RS256", headers={"kid": "one"})
    body = encode(Heartbeat(version=VERSION, node=node, boot_id="b" * 36, sequence=1))
    head = [
        "POST /v1/messages HTTP/1.1",
        "Host: a",
        f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def main() -> None:
    """Print the figures."""
    if len(sys.argv) > 2:
        uvloop.run(serve(sys.argv[1], Path(sys.argv[2])))
        return
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        by = issue_authority(time.time())
        issued = issue_serving_certificate(by, ["127.0.0.1"], time.time())
        for file, text in (
            ("ca", by.certificate),
            ("certificate", issued.certificate),
            ("key", issued.key),
        ):
            (here / file).write_text(text)
        public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "one"}
        (here / "keys").write_text(json.dumps({"keys": [public]}))
        requests = [request(key, f"node-{number}") for number in range(CONNECTIONS)]
        print(f"{CONNECTIONS} connections by TLS 1.3, {BEATS} requests of {len(requests[0])} bytes")
        for at_once in (AT_ONCE, CONNECTIONS):
            for server in ("bare aiohttp", "nodeguard") * 2:
                uvloop.run(measure(server, here, requests, at_once))


main()
