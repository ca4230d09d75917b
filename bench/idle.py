"""Resources of the aggregator with a healthy fleet: memory, CPU for heartbeats, and for all connections.

`python bench/idle.py [--agents 7500] [--seconds 600] [--profile]`. The reference is a bare aiohttp server
under uvloop with the same agents; it has TLS, and verifies and stores nothing. Memory is the proportional set
size. Each agent reports as a real one on a healthy node with 8 GPUs and 8 ports, on a persistent connection,
and then sends a heartbeat every eight to ten seconds. All connect at once, and again at the end. Each kubelet
updates the status of its Node every five minutes. The API server counts the requests of the aggregator.
`--profile` divides the CPU time of the aggregator by part.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.cpu_profile.parts import count_parts
from fixtures.bundles import bundle_path
from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import ServingCertificate, tls_context
from nodeguard.kube.client import ApiClient
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Report
from tests.agent.reporting.receiver import receiving
from tests.controlplane.cluster import Cluster, cluster
from tests.e2e.bulk_nodes import make_nodes, wait_until_schedulable
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.processes import running_agent
from tests.e2e.swarm import Swarm, swarm
from tests.waiting import until

AGENTS = 1000
BUNDLE = bundle_path("healthy-dgx-h100")
SAMPLER = Path(__file__).parent / "cpu_profile" / "sampler.py"

# Seconds until the work of a start is done.
START = 10.0

# Seconds between two updates of the status of a Node: the kubelet's nodeStatusReportFrequency.
STATUS_INTERVAL = 300.0
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

# Labels of each Node, with the number of nodes that share one.
LABELS = {
    "topology.kubernetes.io/zone": 2048,
    "network.topology.nvidia.com/spine": 512,
    "network.topology.nvidia.com/leaf": 32,
    "topology.kubernetes.io/rack": 8,
}


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["bare"]:
        uvloop.run(serve(Path(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description="Measure the aggregator with a healthy fleet.")
    parser.add_argument("--agents", type=int, default=AGENTS, help="agents of the fleet (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of heartbeats (%(default)g)")
    parser.add_argument("--profile", action="store_true", help="divide the CPU time by part")
    options = parser.parse_args()
    names = [f"gpu-{number:04}" for number in range(options.agents)]
    template = report()
    print(f"{len(names)} agents with reports of {len(encode(template))} bytes each", flush=True)
    measure_bare(names, template, options.seconds)
    with cluster() as made, deployed_fleet(made) as scene:
        measure_aggregator(made, scene, names, template, options.seconds, is_profiled=options.profile)
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


def measure_bare(names: list[str], template: Report, seconds: float) -> None:
    """Print the figures of the reference, for a minute at most."""
    seconds = min(seconds, 60.0)
    with bare() as (pid, port, ca):
        row("reference: bare, no agents", pid, idling(pid, seconds / 3))
        # Not verified, and as long as a real token.
        tokens = dict.fromkeys(names, "t" * 900)
        with Swarm(tokens, template, ["127.0.0.1"], port, ca, "127.0.0.1") as agents:
            measure_contact("reference: bare, all connect", pid, agents)
            measure_heartbeats(f"reference: bare, {len(names)} agents", pid, agents, seconds)


def measure_aggregator(
    made: Cluster, scene: Fleet, names: list[str], template: Report, seconds: float, *, is_profiled: bool
) -> None:
    """Print the figures of an aggregator in a cluster."""
    [aggregator] = scene.add_aggregators(1)
    profile = scene.directory / "profile" if is_profiled else None
    if profile is not None:
        aggregator.start((str(SAMPLER), str(profile)))
    else:
        aggregator.start()
    pid = aggregator.pid
    scene.distribute_ca()
    aggregator.ready()
    row("no Nodes, no agents", pid, idling(pid, min(seconds, 60.0) / 3))
    labels = {
        name: {label: f"{label[-4:]}-{number // size}" for label, size in LABELS.items()}
        for number, name in enumerate(names)
    }
    uids = make_nodes(made, names, labels)
    wait_until_schedulable(made)
    with kubelets(made, names):
        time.sleep(START)
        row(f"{len(names)} Nodes, no agents", pid, idling(pid, min(seconds, 60.0) / 3))
        with swarm(scene, uids, template, aggregator) as agents:
            samples(pid, profile)
            measure_contact("all connect", pid, agents)
            print_parts(samples(pid, profile))
            time.sleep(START)
            samples(pid, profile)
            used, began, requests = process_cpu(pid), time.monotonic(), api_requests(made)
            measure_heartbeats(f"{len(names)} Nodes and agents", pid, agents, seconds)
            took = time.monotonic() - began
            share = (process_cpu(pid) - used) / took
            print(f"{'':36}{(api_requests(made) - requests) / took:7.2f} API requests a second", flush=True)
            print_parts(samples(pid, profile), share)
            agents.stop()
            measure_contact("all connect again", pid, agents, aggregator)


async def serve_bare(trust: ssl.SSLContext) -> int:
    """Begin to serve with nothing but aiohttp. Returns the port."""

    async def answer(request: web.BaseRequest) -> web.Response:
        message = decode_message(await request.read())
        return web.Response(body=encode(Reply(VERSION, message.sequence)), content_type="application/json")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    port: int = runner.addresses[0][1]
    return port


async def serve(here: Path) -> None:
    """Serve with aiohttp only."""
    trust = tls_context(ServingCertificate((here / "certificate").read_text(), (here / "key").read_text()))
    print(await serve_bare(trust), flush=True)
    await asyncio.Event().wait()


def issue_certificate(here: Path) -> None:
    """Write the certificate and key of a server, and their CA, into a directory."""
    by = issue_authority(time.time())
    issued = issue_serving_certificate(by, ["127.0.0.1"], time.time())
    for file, text in (
        ("ca", by.certificate),
        ("certificate", issued.certificate),
        ("key", issued.key),
    ):
        (here / file).write_text(text)


@contextmanager
def bare() -> Iterator[tuple[int, int, Path]]:
    """Run the bare server. Yields its process, its port and its CA certificate."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        issue_certificate(here)
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


def measure_contact(name: str, pid: int, agents: Swarm, aggregator: Aggregator | None = None) -> None:
    """Start all agents, and print the time and the CPU time until the report of each is acknowledged.

    aggregator: of which the maximum number of stale agents until then is printed.
    """
    used, began, sent = process_cpu(pid), time.monotonic(), agents.messages
    stale: list[float] = []
    agents.start()
    while agents.pending:
        if aggregator is not None:
            stale.append(aggregator.metric("nodeguard_aggregator_agents_stale"))
        time.sleep(0.5)
    took, used = time.monotonic() - began, process_cpu(pid) - used
    note = f"   stale at most {max(stale, default=0.0):.0f}" if aggregator is not None else ""
    print(
        f"{name:36}{took:7.1f} s     {used:6.1f} CPU s for {agents.messages - sent} messages"
        f"   load {os.getloadavg()[0]:.1f}{note}",
        flush=True,
    )


def measure_heartbeats(name: str, pid: int, agents: Swarm, seconds: float) -> None:
    """Print the resources for the heartbeats of agents."""
    before = agents.messages
    took = idling(pid, seconds)
    row(name, pid, took)
    count = agents.messages - before
    print(
        f"{'':36}{took * seconds / count * 1e6:7.0f} µs a heartbeat, {count / seconds:.0f} a second"
        f"   load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def api_requests(made: Cluster) -> int:
    """Return how many requests the API server has handled of aggregators, by their own flow schema."""
    metrics = made.kubectl("get", "--raw", "/metrics")
    series = 'apiserver_flowcontrol_dispatched_requests_total{flow_schema="nodeguard"'
    lines = (line.rpartition(" ") for line in metrics.splitlines() if line.startswith(series))
    return sum(int(count) for _, _, count in lines)


def samples(pid: int, profile: Path | None) -> Mapping[str, int]:
    """Return the samples of each part since the latest call; none without a profile."""
    if profile is None:
        return {}
    profile.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    until(profile.exists)
    with profile.open() as lines:
        return count_parts(lines)


def print_parts(counts: Mapping[str, int], share: float = 0.0) -> None:
    """Print the samples of each part. share: of a core that the process uses."""
    total = sum(counts.values())
    for part, count in sorted(counts.items(), key=lambda item: -item[1]):
        of_core = f"{share * 100 * count / total:8.2f}% of a core" if share else ""
        print(f"    {part:32}{count / total * 100:7.1f}%{of_core}", flush=True)


@contextmanager
def kubelets(made: Cluster, names: list[str]) -> Iterator[None]:
    """Update the status of Nodes in turn, as the kubelets of a fleet do."""
    stopped = threading.Event()

    async def update() -> None:
        api = await ApiClient.connect(str(made.kubeconfig))
        try:
            for turn in range(sys.maxsize):
                if stopped.is_set():
                    break
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
                path = f"/api/v1/nodes/{names[turn % len(names)]}/status"
                body = {"status": {"conditions": [condition]}}
                await api.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH, timeout=60.0)
                await asyncio.sleep(STATUS_INTERVAL / len(names))
        finally:
            await api.close()

    thread = threading.Thread(target=lambda: uvloop.run(update()))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def idling(pid: int, seconds: float) -> float:
    """Return the share of a core that a process uses."""
    before, began = process_cpu(pid), time.monotonic()
    time.sleep(seconds)
    return (process_cpu(pid) - before) / (time.monotonic() - began)


def row(name: str, pid: int, took: float) -> None:
    print(f"{name:36}{memory(pid):7.1f} MiB   {took * 100:6.2f}% of a core", flush=True)


def memory(pid: int) -> float:
    """Return the proportional set size of a process in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def process_cpu(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
