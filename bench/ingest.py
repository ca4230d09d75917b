"""Memory of an agent in the aggregator, CPU of a new connection and of a heartbeat, and delays.

`python bench/ingest.py [AGENTS]`. The reference is a bare aiohttp handler under uvloop in the same run: it
has TLS, and verifies and stores nothing. The aggregator runs without a cluster, with tokens as in one: it
verifies the token of each connection, stores each report and plans. Each server is a process of its own, and
they run in turn; the agents are another process. All agents connect and send the report of a healthy node
with 8 GPUs and 8 ports, and then heartbeats at the rate of 7,500 agents. The longest delay of the event loop
is measured while all agents connect at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple, cast

import jwt
import uvloop
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.idle import issue_certificate, report, serve_bare
from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.identity.signing_keys import SigningKeyring
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.identity.token_authenticator import TokenAuthenticator
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService
from nodeguard.fleet.planner import Planner
from nodeguard.local.rate_limiter import Rate
from nodeguard.model.policy import Policy
from nodeguard.wire.encoding import encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report

AT_ONCE = 50
SECONDS = 15.0
FLEET = 7500
INTERVAL = 10.0
ISSUER = "https://kubernetes.default.svc"
ACCOUNT = "nodeguard:nodeguard-agent"
FIRST = 1_000_000_000
SERVERS = ("bare aiohttp", "nodeguard")

# All connections have one address.
LIMITS = IngestLimits(
    unauthenticated=FLEET,
    unauthenticated_per_address=FLEET,
    header_timeout=300.0,
    connection_rate=Rate(1e6, 1e6),
    node_rate=Rate(1e6, 1e6),
)


# Tasks of a server, until its end.
running: list[asyncio.Task[None]] = []


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
    """The connection of an agent. Its sequence numbers have one length, so that all heartbeats have."""

    def __init__(self, heartbeat: bytes, report: bytes) -> None:
        self._heartbeat, self._report = heartbeat, report
        self._sequence = FIRST
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of the protocol."""
        # uvloop's own transports are of no class of asyncio's.
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Part of the protocol."""
        if data.startswith(b"HTTP/1.1 200"):
            self.done.set_result(None)
        else:
            self.done.set_exception(RuntimeError(data.decode()))

    async def send_heartbeat(self) -> None:
        """Send a heartbeat, and wait for the answer."""
        await self._send(self._heartbeat)

    async def send_report(self) -> None:
        """Send the report, and wait for the answer."""
        await self._send(self._report)

    async def _send(self, request: bytes) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._sequence += 1
        self.transport.write(request.replace(b"%d" % FIRST, b"%d" % self._sequence))
        await self.done


async def serve_ours(here: Path, trust: ssl.SSLContext) -> int:
    """Begin to serve as the aggregator does. Returns the port."""

    async def keys() -> tuple[str, bytes]:
        return ISSUER, (here / "keys").read_bytes()

    keyring = SigningKeyring(keys)
    identity = TokenAuthenticator(TokenRequirements(frozenset({ACCOUNT})), keyring, time.monotonic)
    planner, outbox, wake = Planner(Policy(), ()), InstructionOutbox(), asyncio.Event()
    inputs = FleetInputs(planner, wake.set)
    backend = StandaloneBackend(None, planner, inputs)
    handler = ReportHandler(planner, inputs, outbox, current_instant, backend.node_reported)

    def handle(caller: Caller, message: Message) -> Reply:
        # Without Kubernetes, the uid of a node is its name.
        return handler(Caller(caller.node, caller.node), message)

    service = AggregatorService(planner, inputs, backend, handler, lambda _: None, wake)
    ingest = IngestServer(identity, handle, lambda: trust, LIMITS)
    await keyring.refresh(time.monotonic())
    await ingest.listen("127.0.0.1", 0)
    running.append(asyncio.create_task(service.run()))
    return ingest.ports[0]


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
    print(await (serve_ours(here, trust) if name == "nodeguard" else serve_bare(trust)), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    watch.cancel()
    print(lag.worst, flush=True)


class Fleet:
    """Agents that are connected to a server."""

    def __init__(self, server: Server, here: Path, messages: list[tuple[bytes, bytes]]) -> None:
        self._server = server
        self._trust = ssl.create_default_context(cafile=str(here / "ca"))
        self._messages = messages
        self.agents: list[Agent] = []

    async def connect(self, count: int) -> None:
        """Connect so many agents at once; each sends a heartbeat."""
        begin = len(self.agents)
        self.agents += await asyncio.gather(
            *(self._connected(*messages) for messages in self._messages[begin : begin + count])
        )

    async def _connected(self, heartbeat: bytes, report: bytes) -> Agent:
        _, agent = await asyncio.get_running_loop().create_connection(
            lambda: Agent(heartbeat, report),
            "127.0.0.1",
            self._server.port,
            ssl=self._trust,
            server_hostname="127.0.0.1",
        )
        await agent.send_heartbeat()
        return agent

    async def report(self) -> None:
        """Send the report of each agent, some at a time."""
        for at in range(0, len(self.agents), AT_ONCE):
            await asyncio.gather(*(agent.send_report() for agent in self.agents[at : at + AT_ONCE]))

    async def send_heartbeats(self, count: int) -> None:
        """Send heartbeats at the rate of FLEET agents."""
        began, sent = time.monotonic(), []
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number * INTERVAL / FLEET - time.monotonic()))
            sent.append(asyncio.ensure_future(self.agents[number % len(self.agents)].send_heartbeat()))
        await asyncio.gather(*sent)


@asynccontextmanager
async def running_server(
    name: str, here: Path
) -> AsyncIterator[tuple[Server, Callable[[], Awaitable[float]]]]:
    """Run a server. Yields it, and a function that ends it and returns its longest delay in seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, name, str(here), stdin=PIPE, stdout=PIPE
    )
    output, entry = process.stdout, process.stdin
    assert output is not None
    assert entry is not None

    async def end() -> float:
        entry.close()
        return float(await output.readline())

    try:
        yield Server(process.pid, int(await output.readline())), end
    finally:
        process.kill()
        await process.wait()


async def measure(name: str, here: Path, messages: list[tuple[bytes, bytes]]) -> None:
    """Print the figures of one server."""
    async with running_server(name, here) as (server, end):
        fleet = Fleet(server, here, messages)
        await fleet.connect(AT_ONCE)
        memory, cpu = server.memory(), server.cpu()
        while len(fleet.agents) < len(messages):
            await fleet.connect(AT_ONCE)
        new = len(messages) - AT_ONCE
        connected, connection = (server.memory() - memory) / new, (server.cpu() - cpu) / new
        await fleet.report()
        size = (server.memory() - memory) / new
        cpu, count = server.cpu(), int(SECONDS * FLEET / INTERVAL)
        await fleet.send_heartbeats(count)
        beat = (server.cpu() - cpu) / count
        print(
            f"{name:<14}{connected:5.1f} KiB a connection {size:6.1f} KiB with a report"
            f"{(memory + size * FLEET) / 1024:6.0f} MiB for {FLEET}{connection * 1e3:7.2f} ms a new one"
            f"{beat * 1e6:6.0f} µs a heartbeat{beat * FLEET / INTERVAL * 100:6.1f}% of a core for {FLEET}"
        )
        await end()


async def measure_delay(name: str, here: Path, messages: list[tuple[bytes, bytes]]) -> None:
    """Print the longest delay of one server while all agents connect at once."""
    async with running_server(name, here) as (server, end):
        await Fleet(server, here, messages).connect(len(messages))
        print(f"{name:<14}{await end() * 1e3:8.1f} ms longest delay of its loop while all connect at once")


def request(token: str, message: Message) -> bytes:
    """Return a request."""
    body = encode(message)
    head = [
        "POST /v1/messages HTTP/1.1",
        "Host: a",
        f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def requests(key: rsa.RSAPrivateKey, node: str, template: Report) -> tuple[bytes, bytes]:
    """Return a heartbeat and a report of a node, with its token."""
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
    beat = Heartbeat(
        version=VERSION, node=node, boot_id=template.boot_id, sequence=FIRST, digest=template.digest
    )
    return request(token, beat), request(token, replace(template, node=node, sequence=FIRST))


def main() -> None:
    """Print the figures."""
    if len(sys.argv) > 2:
        uvloop.run(serve(sys.argv[1], Path(sys.argv[2])))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    template = report()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        issue_certificate(here)
        public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "one"}
        (here / "keys").write_text(json.dumps({"keys": [public]}))
        messages = [requests(key, f"node-{number}", template) for number in range(count)]
        heartbeat, full = map(len, messages[0])
        print(f"{count} agents by TLS 1.3, heartbeats of {heartbeat} bytes and reports of {full} bytes")
        for server in SERVERS * 2:
            uvloop.run(measure(server, here, messages))
        for server in SERVERS * 2:
            uvloop.run(measure_delay(server, here, messages))
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
