"""Cost of one node's credential to the aggregator: reports of ever-new targets at the permitted rate.

A real standalone aggregator. One or several agents send reports of 128 new findings each, as fast as the
aggregator responds. Another agent sends heartbeats: the figures are its delays, beside those before the
flood. Memory and the file of decisions are read at the end.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.model.finding import Health
from nodeguard.wire.encoding import encode
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report, ReportedFinding
from tests.ports import free_address

FINDINGS = 128
TARGETS = itertools.count()


class Sender:
    """An agent's connection."""

    def __init__(self, address: str, node: str) -> None:
        self.node = node
        self.sequence = 0
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=60)

    def send(self, message: Message) -> tuple[int, float]:
        """Send a message. Returns the status, and for how many seconds not to send the next."""
        self._connection.request("POST", "/v1/messages", encode(message))
        response = self._connection.getresponse()
        response.read()
        return response.status, float(response.getheader("Retry-After") or 0.0)

    def report(self) -> Report:
        """Return a report of new targets."""
        self.sequence += 1
        findings = (
            ReportedFinding(
                check="made-up", target=f"fs:/{next(TARGETS)}", health=Health.FATAL, message="it broke"
            )
            for _ in range(FINDINGS)
        )
        return Report(
            version=VERSION, node=self.node, boot_id="b", sequence=self.sequence, digest=f"{self.sequence}",
            health=Health.FATAL, findings=tuple(findings),
        )  # fmt: skip

    def beat(self) -> Heartbeat:
        """Return a heartbeat."""
        self.sequence += 1
        return Heartbeat(version=VERSION, node=self.node, boot_id="b", sequence=self.sequence)


def flood(address: str, nodes: int, end: float) -> None:
    """Send reports of some nodes in turn, as fast as possible."""
    senders = [Sender(address, f"flooding-{number}") for number in range(nodes)]
    for sender in itertools.cycle(senders):
        if time.monotonic() >= end:
            break
        status, wait = sender.send(sender.report())
        if status == 429:
            time.sleep(min(wait, 0.2))


def waits(address: str, node: str, end: float) -> list[float]:
    """Return the seconds of each heartbeat of another node. end: time of the monotonic clock."""
    sender, times = Sender(address, node), []
    while time.monotonic() < end:
        began = time.monotonic()
        sender.send(sender.beat())
        times.append(time.monotonic() - began)
        time.sleep(0.25)
    return times


def memory(pid: int) -> float:
    """MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def print_row(name: str, values: list[float]) -> None:
    ordered = sorted(values)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"{name:<16}{p50 * 1e3:8.1f} ms p50{p99 * 1e3:8.1f} ms p99{ordered[-1] * 1e3:8.1f} ms at most")


def open_incidents(metrics: str) -> float:
    """Return the number of incidents in the metrics."""
    text = urlopen(f"http://{metrics}/metrics").read().decode()
    lines = [line for line in text.splitlines() if line.startswith("nodeguard_aggregator_incidents{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=110.0, help="length of the flood (110)")
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes that flood (1)")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    listen, metrics = free_address(), free_address()
    options = ["aggregator", "--standalone", "--insecure", "--listen", listen, "--metrics", metrics]
    with tempfile.TemporaryDirectory() as name:
        log, state = Path(f"{name}/log"), Path(f"{name}/state/decisions.json")
        command = [sys.executable, "-m", "nodeguard.cli.main", *options, "--socket", f"{name}/socket"]
        command += ["--state", f"{name}/state"]
        with log.open("wb") as file, subprocess.Popen(command, stderr=file) as process:
            while "listens for agents" not in log.read_text():
                time.sleep(0.1)
            print_row("before", waits(listen, "other", time.monotonic() + 10.0))
            at_first, end = memory(process.pid), time.monotonic() + seconds
            flooding = threading.Thread(target=flood, args=(listen, arguments.nodes, end))
            flooding.start()
            print_row("in the flood", waits(listen, "other-too", end))
            flooding.join()
            print(
                f"{next(TARGETS)} targets in {seconds:.0f} s: {open_incidents(metrics):.0f} open incidents, "
                f"memory {at_first:.0f} → {memory(process.pid):.0f} MiB, decisions.json "
                f"{state.stat().st_size / 2**20:.1f} MiB, log {log.stat().st_size / 2**20:.1f} MiB"
            )
            process.terminate()


main()
