"""Duration of `nodeguard check` as a whole process, beside the start of a bare interpreter in the same run.

Pairs of runs in turn; medians, and the median of the ratios of the pairs. Memory is the largest resident set
of the run.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from fixtures.bundles import bundle_path

BUNDLE = bundle_path("healthy-dgx-h100")
RUNS = 21


def run(*arguments: str) -> tuple[float, int]:
    """Seconds and KiB of one run of Python with these arguments."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    began = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)],
    )
    _, _, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - began
    os.close(quiet)
    return seconds, usage.ru_maxrss


def compare(name: str, *arguments: str) -> None:
    """Print the medians of a command, and of a bare interpreter run in turn with it."""
    pairs = [(run(*arguments), run("-c", "pass")) for _ in range(RUNS + 1)][1:]
    took = median(pair[0][0] for pair in pairs) * 1000
    bare = median(pair[1][0] for pair in pairs) * 1000
    ratio = median(pair[0][0] / pair[1][0] for pair in pairs)
    memory = median(pair[0][1] for pair in pairs) / 1024
    print(f"{name:<44}{took:8.0f} ms   bare {bare:5.1f} ms   ratio {ratio:5.1f}   {memory:5.1f} MiB")


def main() -> None:
    """Print the figures."""
    command = ("-m", "nodeguard.cli.main")
    compare("check, this machine", *command, "check")
    compare("check, recorded 8 GPUs and 8 ports", *command, "check", "--from", str(BUNDLE))
    compare("explain xid 79", *command, "explain", "xid", "79")
    compare("--version", *command, "--version")


main()
