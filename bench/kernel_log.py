"""From a line in the kernel log to a finding on /metrics, and what a flood of lines does to the agent.

`python bench/kernel_log.py [TRIALS] [SECONDS]`. The agent is a process of its own on a bundle whose kmsg
grows. Beside each figure: a GET of /healthz over the same loopback, in the same run. The flood's faults are
counted in what the agent remembers at its end, so that one that was missed is seen, and one told twice, too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
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

from fixtures.bundles import bundle_path
from nodeguard.agent.state import decode_state

BUNDLE = bundle_path("healthy-dgx-h100")
UPTIME = 1_000_000
LOADED = "{};NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n"

# Lines in a second of the flood, one in a hundred a fault: Xids of the GPUs themselves and of applications.
RATE, SHARE = 10_000, 100
XIDS = (13, 31, 43, 45, 62, 63, 64, 79, 94, 119)
BATCH = 0.01

# Seconds after which a finding does not come any more.
PATIENCE = 10.0


def main() -> None:
    """Print the figures."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    with bundle() as directory:
        delays(directory, trials)
    with bundle() as directory:
        flood(directory, seconds)


@contextmanager
def bundle() -> Iterator[Path]:
    """A bundle that may be written to."""
    with tempfile.TemporaryDirectory() as above:
        yield Path(shutil.copytree(BUNDLE, Path(above) / "bundle", symlinks=True))


def gpus(directory: Path) -> list[str]:
    """Bus addresses of a bundle's GPUs, as the driver writes them."""
    found = sorted(path.name for path in (directory / "proc/driver/nvidia/gpus").iterdir())
    return [name.rpartition(".")[0] or name for name in found]


def delays(directory: Path, trials: int) -> None:
    """How long after a line a finding is served. Between two of them the driver is loaded, which ends it."""
    listen, addresses = free_address(), gpus(directory)
    command = ["-m", "nodeguard.cli.main", "agent", "--from", str(directory), "--listen", listen]
    took, bare = [], []
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, bufsize=0) as agent:
        try:
            began = wait_for(listen)
            with (directory / "kmsg").open("a") as log:
                for trial in range(trials):
                    address, after = addresses[trial % len(addresses)], time.monotonic() - began
                    wrong = fault(trial * 2, address, 62, after)
                    loaded = LOADED.format(line(4, trial * 2 + 1, after + 0.001))
                    took.append(until(agent, listen, log, wrong, "finding raised", 1))
                    until(agent, listen, log, loaded, "finding resolved", 0)
                    bare.append(timed(listen))
                    time.sleep(0.02)
        finally:
            agent.kill()
    print(row("line to finding", took), f"  GET /healthz {row('', bare).strip()}, {trials} lines")


def until(
    agent: subprocess.Popen[bytes], listen: str, log: TextIO, record: str, message: str, findings: int
) -> float:
    """Seconds from a record's being written to a page of metrics with so many findings.

    message: of the agent's log line after which to request the page; frequent requests would keep the agent
    busy.
    """
    assert agent.stderr is not None
    began = time.perf_counter()
    log.write(record)
    log.flush()
    while select.select([agent.stderr], [], [], PATIENCE)[0]:
        if json.loads(agent.stderr.readline())["msg"] == message:
            shown = get(listen, "/metrics").count(b"\nnodeguard_finding{")
            took = time.perf_counter() - began
            if shown == findings:
                return took
    raise SystemExit(f"not {findings} findings {PATIENCE:g} s after {record}")


def flood(directory: Path, seconds: float) -> None:
    """Lines that do not wait for their reader."""
    listen = free_address()
    addresses = gpus(directory)
    state = directory.parent / "state"
    words = ["agent", "--from", str(directory), "--state", str(state), "--listen", listen]
    command = [sys.executable, "-m", "nodeguard.cli.main", *words]
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
        took = cpu(agent.pid)
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
    told = remembered(state)
    said = int(seconds * RATE) // SHARE
    distinct = len({(address, xid) for address, xid in faults(addresses, said)})
    print(row("/healthz in a flood", during), f"  before it {row('', bare).strip()}")
    print(f"{'faults':<20}{told['events']} of {said}, {told['distinct']} of {distinct} distinct; "
          f"{took:.1f} s of a core")  # fmt: skip


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
                    lines.append(
                        f"6,{10_000 + number},{UPTIME}000000,-;IN=eth0 OUT= SRC=10.0.0.1 LEN={number}\n"
                    )
            log.write("".join(lines))
            log.flush()


def faults(addresses: list[str], count: int) -> list[tuple[str, int]]:
    """GPU and Xid of each fault."""
    return [(addresses[n % len(addresses)], XIDS[n // len(addresses) % len(XIDS)]) for n in range(count)]


def fault(number: int, address: str, xid: int, after: float = 0.0) -> str:
    """A line of the driver's."""
    return f"{line(3, number, after)};NVRM: Xid (PCI:{address}): {xid}, pid=1234, name=train, said.\n"


def line(level: int, number: int, after: float = 0.0) -> str:
    """The head of a line. after: seconds since the agent began; an error that is long past may be over."""
    return f"{level},{2000 + number},{int((UPTIME + after) * 1e6)},-"


def free_address() -> str:
    """Host and port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def get(listen: str, path: str) -> bytes:
    """A page, by the shortest way."""
    host, _, port = listen.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def timed(listen: str) -> float:
    """Seconds that a GET of /healthz takes."""
    began = time.perf_counter()
    get(listen, "/healthz")
    return time.perf_counter() - began


def wait_for(listen: str) -> float:
    """Wait until every source was read. Returns when that was, by the clock."""
    while True:
        try:
            if get(listen, "/readyz").endswith(b"\nready\n"):
                return time.monotonic()
        except OSError:
            pass
        time.sleep(0.05)


def row(name: str, values: list[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    high = quantiles(values, n=100)[98]
    return f"{name:<20}p50 {median(values) * 1000:5.1f} ms   p99 {high * 1000:5.1f} ms"


def remembered(directory: Path) -> dict[str, int]:
    """Faults that an agent has in its memory: all, and those of which GPU and Xid differ."""
    slots = decode_state((directory / "state").read_bytes()).pipeline.judged.targets
    found = [
        (name, one) for name, slot in slots.items() for one in slot.events.values() if "xid" in one.fields
    ]
    distinct = len({(name, one.fields["xid"]) for name, one in found})
    return {"events": sum(one.count for _, one in found), "distinct": distinct}


if __name__ == "__main__":
    main()
