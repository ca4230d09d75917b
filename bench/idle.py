"""What an aggregator takes that has nothing to do: memory without agents and with 1,000, and the processor
for their heartbeats; beside a bare aiohttp server under uvloop that nobody asks anything.

`python bench/idle.py [SECONDS]`. Memory is the proportional set size. Each agent tells what a real one tells
of a healthy node with 8 GPUs and 8 ports, and then beats every ten seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.wire.encoding import encode
from nodeguard.wire.report import Report
from tests.agent.reporting.receiver import receiving
from tests.controlplane.cluster import cluster
from tests.e2e.fleet import fleet
from tests.e2e.minted import make_nodes, settled
from tests.e2e.processes import agent
from tests.e2e.swarm import swarm

AGENTS = 1000
BUNDLE = Path(__file__).parent.parent / "fixtures" / "healthy-dgx-h100"

# Seconds after which what comes with a start is over.
REST = 10.0

BARE = """
import uvloop
from aiohttp import web
async def main():
    runner = web.ServerRunner(web.Server(lambda _: web.Response()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("up", flush=True)
    await __import__("asyncio").Event().wait()
uvloop.run(main())
"""


def main() -> None:
    """Print the figures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        time.sleep(1.0)
        print(f"{'reference: bare aiohttp, uvloop':36}{memory(bare.pid):7.1f} MiB")
        bare.kill()
    told = report()
    with cluster() as made, fleet(made) as scene:
        [aggregator] = scene.aggregate(1)
        aggregator.start()
        scene.trust()
        aggregator.ready()
        took = idling(aggregator.pid, seconds / 2)
        row("no Nodes, no agents", aggregator.pid, took)
        uids = make_nodes(made, [f"gpu-{number:04}" for number in range(AGENTS)])
        settled(made)
        took = idling(aggregator.pid, seconds / 2)
        row(f"{AGENTS} Nodes, no agents", aggregator.pid, took)
        with swarm(scene, uids, told, aggregator) as agents:
            agents.speak()
            agents.heard()
            time.sleep(REST)
            beats, began = agents.messages, time.monotonic()
            took = idling(aggregator.pid, seconds)
            rate = (agents.messages - beats) / (time.monotonic() - began)
            row(f"{AGENTS} agents", aggregator.pid, took)
            print(f"{rate:.0f} heartbeats a second; a report has {len(encode(told))} bytes")
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


def report() -> Report:
    """What a real agent tells of a healthy node."""
    with tempfile.TemporaryDirectory() as name, receiving() as receiver:
        here = Path(name)
        (here / "token").write_text("secret")
        (here / "agent.yaml").write_text(
            f"aggregator: {{addresses: ['{receiver.address}'], token_file: {here}/token}}\n"
        )
        with agent(here, "--from", str(BUNDLE), "--config", str(here / "agent.yaml")):
            while not (receiver.applied and receiver.applied[-1].proven):
                time.sleep(0.1)
            return receiver.applied[-1]


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
