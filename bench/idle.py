"""Resources of an idle aggregator: memory without agents and with 1,000, and CPU for their heartbeats.

`python bench/idle.py [SECONDS]`. The reference is a bare aiohttp server under uvloop with the same agents; it
has TLS, and verifies and stores nothing. Memory is the proportional set size. Each agent reports as a real
one on a healthy node with 8 GPUs and 8 ports, on a persistent connection, and then sends a heartbeat every
ten seconds.
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

# Seconds until the work of a start is done.
START = 10.0

NAMES = [f"gpu-{number:04}" for number in range(AGENTS)]


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["bare"]:
        uvloop.run(serve(Path(sys.argv[2])))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    template = report()
    print(f"{AGENTS} agents with reports of {len(encode(template))} bytes each")
    with bare() as (pid, port, ca):
        row("reference: bare, no agents", pid, idling(pid, seconds / 3))
        # Not verified, and as long as a real token.
        tokens = dict.fromkeys(NAMES, "t" * 900)
        with Swarm(tokens, template, ["127.0.0.1"], port, ca, "127.0.0.1") as agents:
            measure_heartbeats(f"reference: bare, {AGENTS} agents", pid, agents, seconds)
    with cluster() as made, deployed_fleet(made) as scene:
        [aggregator] = scene.add_aggregators(1)
        aggregator.start()
        scene.distribute_ca()
        aggregator.ready()
        row("no Nodes, no agents", aggregator.pid, idling(aggregator.pid, seconds / 3))
        uids = make_nodes(made, NAMES)
        wait_until_schedulable(made)
        row(f"{AGENTS} Nodes, no agents", aggregator.pid, idling(aggregator.pid, seconds / 3))
        with swarm(scene, uids, template, aggregator) as agents:
            measure_heartbeats(f"{AGENTS} Nodes and agents", aggregator.pid, agents, seconds)
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


async def serve(here: Path) -> None:
    """Serve with aiohttp only."""

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
    """Run the bare server. Yields its process, its port and its CA certificate."""
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
        words = [sys.executable, __file__, "bare", name]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                yield process.pid, int(process.stdout.readline()), here / "ca"
            finally:
                process.kill()


def report() -> Report:
    """Return the report of a real agent on a healthy node."""
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


def measure_heartbeats(name: str, pid: int, agents: Swarm, seconds: float) -> None:
    """Start agents, and print the resources for their heartbeats."""
    agents.start()
    agents.wait_until_delivered()
    time.sleep(START)
    before = agents.messages
    took = idling(pid, seconds)
    row(name, pid, took)
    print(f"{'':36}{took * seconds / (agents.messages - before) * 1e6:7.0f} µs a heartbeat")


def idling(pid: int, seconds: float) -> float:
    """Return the share of a core that a process uses."""
    before, began = cpu(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu(pid) - before) / (time.monotonic() - began)


def row(name: str, pid: int, took: float) -> None:
    print(f"{name:36}{memory(pid):7.1f} MiB   {took * 100:6.2f}% of a processor")


def memory(pid: int) -> float:
    """Return the proportional set size of a process in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
