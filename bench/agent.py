"""Resources of a live agent on an 8-GPU, 8-port node, beside Debian's node exporter in the same run.

`python bench/agent.py [SECONDS]`. The agent is started as on a node, and reads a root of its own: the tree of
a bundle, a kernel log without lines, and a libnvidia-ml.so.1 with the readings of the bundle. Both exporters
are scraped every 15 s; a bare interpreter is measured too. Memory is the proportional set size of a process
and its children together: `private` is the part that they have written, the rest are pages of program files,
which count less the more processes run the same Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent.parent))

from fixtures.bundles import bundle_path
from tests.nvml_double import Double, compiled

BUNDLE = bundle_path("healthy-dgx-h100")
EXPORTER = "prometheus-node-exporter"
BOOT_ID = "proc/sys/kernel/random/boot_id"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
TICKS = os.sysconf("SC_CLK_TCK")

# Seconds: between two scrapes; for the start, which is not counted; between two samples of the memory.
SCRAPE_INTERVAL = 15.0
START = 30.0
SAMPLE_INTERVAL = 1.0


class Scrape(NamedTuple):
    """The text of a scrape, and the seconds that it took."""

    text: str
    took: float


class Measured:
    """A process under measurement. url: of its metrics, empty for none."""

    def __init__(self, name: str, command: list[str], url: str = "", loads: str = "") -> None:
        self.name = name
        self.url = url
        self.scrapes: list[Scrape] = []
        self.memory: list[float] = []
        self.private: list[float] = []
        environment = {**os.environ, "LD_LIBRARY_PATH": loads} if loads else None
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )

    def scrape(self) -> None:
        """Scrape its metrics, if it has any."""
        if self.url:
            began = time.perf_counter()
            with urlopen(self.url, timeout=10) as response:
                text = response.read().decode()
            self.scrapes.append(Scrape(text, time.perf_counter() - began))

    def sample_memory(self) -> None:
        """Record its memory."""
        processes = [rollup(pid) for pid in tree(self.process.pid)]
        self.memory.append(sum(process["Pss"] for process in processes))
        self.private.append(sum(process["Private_Dirty"] for process in processes))

    def cpu(self) -> float:
        """Return its CPU seconds, with those of its children."""
        return sum(map(cpu, tree(self.process.pid)))

    def row(self, share: float) -> str:
        """Return its row of the table. share: of a core."""
        last = self.scrapes[-1].text if self.scrapes else ""
        series = sum(not line.startswith("#") for line in last.splitlines())
        took = (
            f"{median(scrape.took for scrape in self.scrapes) * 1000:8.1f} ms"
            if self.scrapes
            else f"{'-':>11}"
        )
        memory = f"{median(self.private):8.1f}{median(self.memory):7.1f}{max(self.memory):7.1f} MiB"
        processes = len(list(tree(self.process.pid)))
        return (
            f"{self.name:<26}{processes:>4}{memory}{share * 100:9.3f} %{took}{series:8}{len(last.encode()):9}"
        )


def main() -> None:
    """Print the table."""
    lasting = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    with ExitStack() as stack:
        root = stack.enter_context(node())
        measured = [stack.enter_context(running(process)) for process in (agent(root), *exporter(), bare())]
        time.sleep(START)
        measured[0].scrape()
        if 'nodeguard_node_health{health="ok"} 1' not in measured[0].scrapes[0].text:
            raise SystemExit(f"the node is not healthy, so this is no figure:\n{measured[0].scrapes[0].text}")
        for process in measured:
            process.scrapes.clear()
        before, began = [process.cpu() for process in measured], time.monotonic()
        watch(measured, lasting)
        took = time.monotonic() - began
        shares = [(process.cpu() - spent) / took for process, spent in zip(measured, before, strict=True)]
        columns = (
            f"{'private':>8}{'memory':>7}{'most':>7}{'of a core':>15}{'scrape':>11}{'series':>8}{'bytes':>9}"
        )
        print(f"{'processes':>30}{columns}")
        for process, share in zip(measured, shares, strict=True):
            print(process.row(share))
        print(
            f"medians over {took:.0f} s, {len(measured[0].scrapes)} scrapes; without the first {START:.0f} s"
        )


def watch(measured: list[Measured], lasting: float) -> None:
    """Scrape the processes and sample their memory, each at its interval."""
    began = time.monotonic()
    scraped = 0
    while (since := time.monotonic() - began) < lasting:
        for process in measured:
            process.sample_memory()
            if since >= scraped * SCRAPE_INTERVAL:
                process.scrape()
        scraped += since >= scraped * SCRAPE_INTERVAL
        time.sleep(SAMPLE_INTERVAL)


@contextmanager
def node() -> Iterator[Path]:
    """Yield the root directory of a healthy node, with a driver library and a kernel log."""
    with tempfile.TemporaryDirectory() as above:
        root = Path(above) / "root"
        for part in ("proc", "sys", "etc"):
            shutil.copytree(BUNDLE / part, root / part, symlinks=True)
        for mount in re.findall(r'"statvfs\(/(.*)\)"', (BUNDLE / "calls.json").read_text()):
            (root / mount).mkdir(parents=True, exist_ok=True)
        (root / BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"/{BOOT_ID}", root / BOOT_ID)
        (root / "dev").mkdir()
        (root / "dev/nvidiactl").touch()
        os.mkfifo(root / "dev/kmsg")
        # Open for writing: a pipe without a writer is at its end, and a kernel log never is.
        log = os.open(root / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
        double = Double(compiled(Path(above) / "libnvidia-ml.so.1"), root / LIBRARIES)
        double.answer(json.loads((BUNDLE / "nvml.json").read_text()))
        try:
            yield root
        finally:
            double.close()
            os.close(log)


def agent(root: Path) -> Measured:
    """Start the agent on such a root."""
    listen = free_address()
    command = agent_command(root, listen)
    return Measured("nodeguard agent", command, f"http://{listen}/metrics", str(root / LIBRARIES))


def agent_command(root: Path, listen: str) -> list[str]:
    """Return the command of an agent that reads such a root."""
    settings = {"--root": root, "--state": root.parent / "state", "--socket": root.parent / "socket"}
    options = [str(argument) for pair in settings.items() for argument in pair]
    return [sys.executable, "-m", "nodeguard.cli.main", "agent", "--listen", listen, *options]


def exporter() -> list[Measured]:
    """Start the node exporter, if it is installed."""
    path = shutil.which(EXPORTER)
    if path is None:
        print(f"{EXPORTER} is missing: run 'apt-get install {EXPORTER}' as root for its line")
        return []
    listen = free_address()
    return [Measured(EXPORTER, [path, f"--web.listen-address={listen}"], f"http://{listen}/metrics")]


def bare() -> Measured:
    """Start an interpreter that sleeps."""
    return Measured("bare interpreter", [sys.executable, "-c", "import time; time.sleep(1e6)"])


@contextmanager
def running(measured: Measured) -> Iterator[Measured]:
    """Yield a process, and end it with its children."""
    try:
        yield measured
    finally:
        measured.process.terminate()
        try:
            measured.process.wait(10)
        except subprocess.TimeoutExpired:
            measured.process.kill()
            measured.process.wait()


def tree(pid: int) -> Iterator[int]:
    """Yield a process and its children."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process, with those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def rollup(pid: int) -> dict[str, float]:
    """Return the sizes in the smaps_rollup of a process in MiB, by name; 0 for all after its end."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rows = re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)
    return defaultdict(float, {name: int(size) / 1024 for name, size in rows})


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


if __name__ == "__main__":
    main()
