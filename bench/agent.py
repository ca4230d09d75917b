"""What the agent costs on a recorded 8-GPU, 8-port node, beside a bare interpreter.

`python bench/agent.py [SECONDS]`; the longer, the more its start counts for nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from urllib.request import urlopen

BUNDLE = Path(__file__).parent.parent / "fixtures" / "healthy-dgx-h100"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    lasting = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    agent = ["-m", "nodeguard.cli.main", "agent", "--from", str(BUNDLE), "--listen", listen]
    bare = ["-c", "import time; time.sleep(1e6)"]
    with running(agent) as one, running(bare) as other:
        try:
            time.sleep(5.0)
            spent, began = cpu(one.pid), time.monotonic()
            scrapes = []
            while time.monotonic() - began < lasting:
                time.sleep(min(15.0, lasting / 4))
                scrapes.append(scrape(f"http://{listen}/metrics"))
            share = (cpu(one.pid) - spent) / (time.monotonic() - began)
            print(f"{'memory (PSS)':<14}{pss(one.pid):5.1f} MiB   bare {pss(other.pid):.1f} MiB")
            print(f"{'processor':<14}{share * 100:5.2f} % of a core over {lasting:.0f} s")
            print(f"{'scrape':<14}{median(scrapes) * 1000:5.1f} ms, median of {len(scrapes)}")
        finally:
            one.kill()
            other.kill()


def running(words: list[str]) -> subprocess.Popen[bytes]:
    """A Python process, with what it says thrown away."""
    return subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def pss(pid: int) -> float:
    """Proportional set size of a process, MiB."""
    [line] = [
        line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:")
    ]
    return int(line.split()[1]) / 1024


def scrape(url: str) -> float:
    """Seconds that a scrape takes."""
    began = time.perf_counter()
    with urlopen(url, timeout=10) as answer:
        answer.read()
    return time.perf_counter() - began


main()
