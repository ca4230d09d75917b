"""What a live agent costs on an 8-GPU, 8-port node, beside Debian's node exporter in the same run.

`python bench/agent.py [SECONDS]`. The agent is started as on a node, and reads a root of its own: a bundle's
tree, a kernel log that is silent, and a libnvidia-ml.so.1 that answers as the bundle says. Both exporters
are scraped every 15 s; a bare interpreter stands beside them. Memory is the proportional set size of a
process and its children together.
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

# Seconds: between two scrapes; for a start, which is not counted; between two looks at the memory.
EVERY = 15.0
START = 30.0
LOOK = 1.0


class Page(NamedTuple):
    """What a scrape brought, and the seconds that it took."""

    text: str
    took: float


class Measured:
    """A process under measurement. url: of its metrics, empty where it has none."""

    def __init__(self, name: str, command: list[str], url: str = "", loads: str = "") -> None:
        self.name = name
        self.url = url
        self.pages: list[Page] = []
        self.memory: list[float] = []
        environment = {**os.environ, "LD_LIBRARY_PATH": loads} if loads else None
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )

    def scrape(self) -> None:
        """Scrape it, where there is something to scrape."""
        if self.url:
            began = time.perf_counter()
            with urlopen(self.url, timeout=10) as answer:
                text = answer.read().decode()
            self.pages.append(Page(text, time.perf_counter() - began))

    def look(self) -> None:
        """Note its memory."""
        self.memory.append(sum(map(pss, tree(self.process.pid))))

    def cpu(self) -> float:
        """Seconds of processor time, of its children too, whether they have ended or not."""
        return sum(map(cpu, tree(self.process.pid)))

    def row(self, share: float) -> str:
        """A line of the table."""
        last = self.pages[-1].text if self.pages else ""
        series = sum(not line.startswith("#") for line in last.splitlines())
        took = f"{median(page.took for page in self.pages) * 1000:8.1f} ms" if self.pages else f"{'-':>11}"
        memory = f"{median(self.memory):7.1f}{max(self.memory):7.1f} MiB"
        processes = len(list(tree(self.process.pid)))
        return (
            f"{self.name:<26}{processes:>4}{memory}{share * 100:9.3f} %{took}{series:8}{len(last.encode()):9}"
        )


def main() -> None:
    """Print the table."""
    lasting = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    with ExitStack() as stack:
        root = stack.enter_context(node())
        measured = [stack.enter_context(running(one)) for one in (agent(root), *exporter(), bare())]
        time.sleep(START)
        measured[0].scrape()
        if 'nodeguard_node_health{health="ok"} 1' not in measured[0].pages[0].text:
            raise SystemExit(f"the node is not healthy, so this is no figure:\n{measured[0].pages[0].text}")
        for one in measured:
            one.pages.clear()
        before, began = [one.cpu() for one in measured], time.monotonic()
        watch(measured, lasting)
        took = time.monotonic() - began
        shares = [(one.cpu() - spent) / took for one, spent in zip(measured, before, strict=True)]
        columns = f"{'memory':>7}{'most':>7}{'of a core':>15}{'scrape':>11}{'series':>8}{'bytes':>9}"
        print(f"{'processes':>30}{columns}")
        for one, share in zip(measured, shares, strict=True):
            print(one.row(share))
        print(f"medians over {took:.0f} s, {len(measured[0].pages)} scrapes; without the first {START:.0f} s")


def watch(measured: list[Measured], lasting: float) -> None:
    """Scrape and look, each at its pace."""
    began = time.monotonic()
    scraped = 0
    while (since := time.monotonic() - began) < lasting:
        for one in measured:
            one.look()
            if since >= scraped * EVERY:
                one.scrape()
        scraped += since >= scraped * EVERY
        time.sleep(LOOK)


@contextmanager
def node() -> Iterator[Path]:
    """The root directory of a healthy node, with a driver's library and a kernel log."""
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
        # Held open for writing: a pipe that nobody writes to is at its end, and a kernel log never is.
        log = os.open(root / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
        double = Double(compiled(Path(above) / "libnvidia-ml.so.1"), root / LIBRARIES)
        double.answer(json.loads((BUNDLE / "nvml.json").read_text()))
        try:
            yield root
        finally:
            double.close()
            os.close(log)


def agent(root: Path) -> Measured:
    """The agent on such a root."""
    listen = free_address()
    told = {"--root": root, "--state": root.parent / "state", "--socket": root.parent / "socket"}
    words = [str(word) for pair in told.items() for word in pair]
    command = [sys.executable, "-m", "nodeguard.cli.main", "agent", "--listen", listen, *words]
    return Measured("nodeguard agent", command, f"http://{listen}/metrics", str(root / LIBRARIES))


def exporter() -> list[Measured]:
    """The node exporter, where it is installed."""
    path = shutil.which(EXPORTER)
    if path is None:
        print(f"{EXPORTER} is missing: run 'apt-get install {EXPORTER}' as root for its line")
        return []
    listen = free_address()
    return [Measured(EXPORTER, [path, f"--web.listen-address={listen}"], f"http://{listen}/metrics")]


def bare() -> Measured:
    """An interpreter that sleeps."""
    return Measured("bare interpreter", [sys.executable, "-c", "import time; time.sleep(1e6)"])


@contextmanager
def running(one: Measured) -> Iterator[Measured]:
    """A process that is ended in any case, and its children with it."""
    try:
        yield one
    finally:
        one.process.terminate()
        try:
            one.process.wait(10)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()


def tree(pid: int) -> Iterator[int]:
    """A process and its children."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has taken, with those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def pss(pid: int) -> float:
    """Proportional set size of a process, MiB."""
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


main()
