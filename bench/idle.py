"""What an aggregator takes that has nothing to do: memory without agents and with 1,000, and the processor
for their heartbeats; beside a bare aiohttp server under uvloop, which the same agents speak to.

`python bench/idle.py [SECONDS]`. Memory is the proportional set size. Each agent tells what a real one tells
of a healthy node with 8 GPUs and 8 ports, on a connection that it keeps, and then beats every ten seconds.
The bare server has TLS, and verifies and keeps nothing.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent.parent))

from fixtures.bundles import bundle_path
from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Report
from tests.agent.reporting.receiver import receiving
from tests.controlplane.cluster import cluster
from tests.e2e.bulk_nodes import make_nodes, wait_until_schedulable
from tests.e2e.fleet import deployed_fleet
from tests.e2e.processes import running_agent
from tests.e2e.swarm import Swarm, swarm

AGENTS = 1000
BUNDLE = bundle_path("healthy-dgx-h100")

# Seconds after which what comes with a start is over.
REST = 10.0

NAMES = [f"gpu-{number:04}" for number in range(AGENTS)]


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["bare"]:
        uvloop.run(serve(Path(sys.argv[2])))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    told = report()
    print(f"{AGENTS} agents, whose reports have {len(encode(told))} bytes each")
    with bare() as (pid, port, ca):
        row("reference: bare, no agents", pid, idling(pid, seconds / 3))
        # A token that nobody looks at, as long as a real one.
        tokens = dict.fromkeys(NAMES, "t" * 900)
        with Swarm(tokens, told, ["127.0.0.1"], port, ca, "127.0.0.1") as agents:
            beating(f"reference: bare, {AGENTS} agents", pid, agents, seconds)
    with cluster() as made, deployed_fleet(made) as scene:
        [aggregator] = scene.add_aggregators(1)
        aggregator.start()
        scene.distribute_ca()
        aggregator.ready()
        row("no Nodes, no agents", aggregator.pid, idling(aggregator.pid, seconds / 3))
        uids = make_nodes(made, NAMES)
        wait_until_schedulable(made)
        row(f"{AGENTS} Nodes, no agents", aggregator.pid, idling(aggregator.pid, seconds / 3))
        with swarm(scene, uids, told, aggregator) as agents:
            beating(f"{AGENTS} Nodes and agents", aggregator.pid, agents, seconds)
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


async def serve(here: Path) -> None:
    """A server with nothing but aiohttp."""

    async def answer(request: web.BaseRequest) -> web.Response:
        message = decode_message(await request.read())
        return web.Response(body=encode(Reply(VERSION, message.sequence)), content_type="application/json")

    trust = tls_context(ServingCertificate((here / "certificate").read_text(), (here / "key").read_text()))
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def bare() -> Iterator[tuple[int, int, Path]]:
    """The bare server: its process, its port, and whom to trust."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        by = issue_authority(time.time())
        shown = issue_serving_certificate(by, ["127.0.0.1"], time.time())
        for file, text in (("ca", by.certificate), ("certificate", shown.certificate), ("key", shown.key)):
            (here / file).write_text(text)
        words = [sys.executable, __file__, "bare", name]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                yield process.pid, int(process.stdout.readline()), here / "ca"
            finally:
                process.kill()


def report() -> Report:
    """What a real agent tells of a healthy node."""
    with tempfile.TemporaryDirectory() as name, receiving() as receiver:
        here = Path(name)
        (here / "token").write_text("secret")
        (here / "agent.yaml").write_text(
            f"aggregator: {{addresses: ['{receiver.address}'], token_file: {here}/token}}\n"
        )
        with running_agent(here, "--from", str(BUNDLE), "--config", str(here / "agent.yaml")):
            while not (receiver.applied and receiver.applied[-1].passing):
                time.sleep(0.1)
            return receiver.applied[-1]


def beating(what: str, pid: int, agents: Swarm, seconds: float) -> None:
    """Have agents tell their reports and beat; print what that takes."""
    agents.start()
    agents.wait_until_delivered()
    time.sleep(REST)
    before = agents.messages
    took = idling(pid, seconds)
    row(what, pid, took)
    print(f"{'':36}{took * seconds / (agents.messages - before) * 1e6:7.0f} µs a heartbeat")


def idling(pid: int, seconds: float) -> float:
    """Share of a processor that a process takes."""
    before, began = cpu(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu(pid) - before) / (time.monotonic() - began)


def row(what: str, pid: int, took: float) -> None:
    print(f"{what:36}{memory(pid):7.1f} MiB   {took * 100:6.2f}% of a processor")


def memory(pid: int) -> float:
    """Proportional set size in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu(pid: int) -> float:
    """Seconds of a processor that a process has had."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
