"""From a line in the kernel log to a finding on /metrics, and the cost of many lines.

`python bench/kernel_log.py [TRIALS] [SECONDS]`. The agent is a process of its own, on a bundle with a kmsg
that grows. First: one line at a time, without and with 24 active findings, beside a GET of /healthz over the
same loopback. Then 10,000 lines, beside the same lines without faults. Last: a flood. Its faults are counted
in the state of the agent at its end, which shows missed and doubled faults.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TextIO

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.agent import free_address
from bench.idle import process_cpu
from fixtures.bundles import bundle_path
from nodeguard.agent.state import decode_state

BUNDLE = bundle_path("healthy-dgx-h100")
UPTIME = 1_000_000

# Lines in a second of the flood, one in a hundred a fault: Xids of the GPUs themselves and of applications.
RATE, SHARE = 10_000, 100
XIDS = (13, 31, 43, 45, 62, 63, 64, 79, 94, 119)
BATCH = 0.01

# Xids with a finding of their own on each of the first six GPUs: 24 findings. One Xid begins a finding and
# another one ends it.
ACTIVE_XIDS, ACTIVE_GPUS = (48, 64, 110, 119), 6
BEGIN, END = 163, 162

# Lines of one batch and batches, with one fault in each batch or without; seconds between two batches.
LINES, BATCHES, PAUSE = 100, 100, 0.05

# Seconds after which a missing finding is an error.
PATIENCE = 10.0


def main() -> None:
    """Print the figures."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")
    for gpus_with_findings in (0, ACTIVE_GPUS):
        with bundle() as directory:
            delays(directory, trials, gpus_with_findings)
    for has_faults in (False, True):
        with bundle() as directory:
            many_lines(directory, has_faults=has_faults)
    with bundle() as directory:
        flood(directory, seconds)


@contextmanager
def bundle() -> Iterator[Path]:
    """Yield a copy of the bundle that may be written to."""
    with tempfile.TemporaryDirectory() as above:
        yield Path(shutil.copytree(BUNDLE, Path(above) / "bundle", symlinks=True))


def gpus(directory: Path) -> list[str]:
    """Return the bus addresses of a bundle's GPUs, as the driver writes them."""
    names = sorted(path.name for path in (directory / "proc/driver/nvidia/gpus").iterdir())
    return [name.rpartition(".")[0] or name for name in names]


def delays(directory: Path, trials: int, gpus_with_findings: int) -> None:
    """Measure the time from a line to a finding in the metrics, with findings on the first GPUs."""
    listen, addresses = free_address(), gpus(directory)
    command = ["-m", "nodeguard.cli.main", "agent", "--from", str(directory), "--listen", listen]
    took, bare = [], []
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, bufsize=0) as agent:
        try:
            began = wait_for(listen)
            with (directory / "kmsg").open("a") as log:
                numbers = itertools.count()

                def change(address: str, xid: int, message: str, findings: int) -> float:
                    record = fault(next(numbers), address, xid, time.monotonic() - began)
                    return until(agent, listen, log, record, message, findings)

                active = 0
                for address in addresses[:gpus_with_findings]:
                    for xid in ACTIVE_XIDS:
                        active += 1
                        change(address, xid, "finding raised", active)
                for _ in range(trials):
                    took.append(change(addresses[-1], BEGIN, "finding raised", active + 1))
                    change(addresses[-1], END, "finding resolved", active)
                    bare.append(timed(listen))
                    time.sleep(0.02)
        finally:
            agent.kill()
    name = f"line, {active} findings"
    print(row(name, took), f"  GET /healthz {row('', bare).strip()}, {trials} lines")


def until(
    agent: subprocess.Popen[bytes], listen: str, log: TextIO, record: str, message: str, findings: int
) -> float:
    """Write a record. Returns the seconds until the metrics show this number of findings.

    message: of the agent's log line after which to request the page; frequent requests would keep the agent
    busy.
    """
    assert agent.stderr is not None
    began = time.perf_counter()
    log.write(record)
    log.flush()
    while select.select([agent.stderr], [], [], PATIENCE)[0]:
        if json.loads(agent.stderr.readline())["msg"] == message:
            shown = findings_in(get(listen, "/metrics"))
            took = time.perf_counter() - began
            if shown == findings:
                return took
    raise SystemExit(f"not {findings} findings {PATIENCE:g} s after {record}")


def findings_in(metrics: bytes) -> int:
    """Return the number of findings in the metrics, with those without a series of their own."""
    omitted = re.search(rb"\nnodeguard_findings_omitted (\d+)", metrics)
    return metrics.count(b"\nnodeguard_finding{") + (int(omitted[1]) if omitted else 0)


def many_lines(directory: Path, *, has_faults: bool) -> None:
    """Measure the CPU time for lines in batches, each with one fault or without, evaluated one by one."""
    listen = free_address()
    command = ["-m", "nodeguard.cli.main", "agent", "--from", str(directory), "--listen", listen]
    wrong = iter(faults(gpus(directory), BATCHES))
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL) as agent:
        try:
            wait_for(listen)
            time.sleep(1.0)
            before = process_cpu(agent.pid)
            with (directory / "kmsg").open("a") as log:
                for batch in range(BATCHES):
                    lines = [noise(batch * LINES + number) for number in range(LINES)]
                    if has_faults:
                        lines[0] = fault(batch * LINES, *next(wrong))
                    log.write("".join(lines))
                    log.flush()
                    time.sleep(PAUSE)
            time.sleep(1.0)
            took = process_cpu(agent.pid) - before
        finally:
            agent.kill()
    name = f"{BATCHES * LINES:,} lines, {BATCHES if has_faults else 0} faults"
    print(f"{name:<28}{took:6.2f} s of CPU in {BATCHES * PAUSE:g} s")


def flood(directory: Path, seconds: float) -> None:
    """Measure the agent under a flood of lines."""
    listen = free_address()
    addresses = gpus(directory)
    state = directory.parent / "state"
    options = ["agent", "--from", str(directory), "--state", str(state), "--listen", listen]
    command = [sys.executable, "-m", "nodeguard.cli.main", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as agent:
        wait_for(listen)
        bare = [timed(listen) for _ in range(200)]
        writer = multiprocessing.Process(target=write, args=(directory / "kmsg", addresses, seconds))
        writer.start()
        during = []
        while writer.is_alive():
            during.append(timed(listen))
            time.sleep(0.01)
        time.sleep(2.0)
        took = process_cpu(agent.pid)
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
    stored = stored_faults(state)
    written = int(seconds * RATE) // SHARE
    distinct = len({(address, xid) for address, xid in faults(addresses, written)})
    print(row("/healthz in a flood", during), f"  before it {row('', bare).strip()}")
    print(f"{'faults':<20}{stored['events']} of {written}, {stored['distinct']} of {distinct} distinct; "
          f"{took:.1f} s of a core")  # fmt: skip


def write(path: Path, addresses: list[str], seconds: float) -> None:
    """Write the flood, batch by batch, each at its time."""
    total = int(seconds * RATE)
    wrong = iter(faults(addresses, total // SHARE))
    began = time.monotonic()
    with path.open("a") as log:
        for start in range(0, total, int(RATE * BATCH)):
            time.sleep(max(0.0, began + start / RATE - time.monotonic()))
            lines = []
            for number in range(start, start + int(RATE * BATCH)):
                if number % SHARE == 0:
                    lines.append(fault(number, *next(wrong)))
                else:
                    lines.append(noise(number))
            log.write("".join(lines))
            log.flush()


def faults(addresses: list[str], count: int) -> list[tuple[str, int]]:
    """Return the GPU and the Xid of each fault."""
    return [(addresses[n % len(addresses)], XIDS[n // len(addresses) % len(XIDS)]) for n in range(count)]


def fault(number: int, address: str, xid: int, after: float = 0.0) -> str:
    """Return a line of the driver."""
    return f"{line(3, number, after)};NVRM: Xid (PCI:{address}): {xid}, pid=1234, name=train, text.\n"


def noise(number: int) -> str:
    """Return a line of the kernel that means nothing."""
    return f"6,{10_000 + number},{UPTIME}000000,-;IN=eth0 OUT= SRC=10.0.0.1 LEN={number}\n"


def line(level: int, number: int, after: float = 0.0) -> str:
    """Return the head of a line. after: seconds since the start of the agent."""
    return f"{level},{2000 + number},{int((UPTIME + after) * 1e6)},-"


def get(listen: str, path: str) -> bytes:
    """Return an HTTP response, over a bare socket."""
    host, _, port = listen.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def timed(listen: str) -> float:
    """Return the seconds that a GET of /healthz takes."""
    began = time.perf_counter()
    get(listen, "/healthz")
    return time.perf_counter() - began


def wait_for(listen: str) -> float:
    """Wait until the agent is ready. Returns the time of the monotonic clock."""
    while True:
        try:
            if get(listen, "/readyz").endswith(b"\nready\n"):
                return time.monotonic()
        except OSError:
            pass
        time.sleep(0.05)


def row(name: str, values: list[float]) -> str:
    """Return a row with the median and the 99th percentile in milliseconds."""
    high = quantiles(values, n=100)[98]
    return f"{name:<20}p50 {median(values) * 1000:5.1f} ms   p99 {high * 1000:5.1f} ms"


def stored_faults(directory: Path) -> dict[str, int]:
    """Return the number of faults in an agent's state, and of those with distinct GPU and Xid."""
    targets = decode_state((directory / "state").read_bytes()).pipeline.judged.targets
    events = [
        (name, event)
        for name, target in targets.items()
        for event in target.events.values()
        if "xid" in event.fields
    ]
    distinct = len({(name, event.fields["xid"]) for name, event in events})
    return {"events": sum(event.count for _, event in events), "distinct": distinct}


if __name__ == "__main__":
    main()
