"""Duration of `nodeguard check` as a whole process, and from the start of an agent to its first verdict.

Beside each: the start of a bare interpreter in the same run. Pairs of runs in turn; medians, and the median
of the ratios of the pairs. Memory is the largest resident set of the run. The agent reads a live root with 8
GPUs and 8 ports, see agent.py; its first verdict is the one that it logs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.agent import LIBRARIES, agent_command, free_address, node
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


def first_verdict() -> None:
    """Print the median time from the start of an agent to its first verdict."""
    times, bare = [], []
    with node() as root:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(root / LIBRARIES)}
        for _ in range(RUNS):
            command = agent_command(root, free_address())
            began = time.perf_counter()
            with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0, env=environment) as process:
                assert process.stderr is not None
                while b'"node health changed"' not in process.stderr.readline():
                    pass
                times.append(time.perf_counter() - began)
                process.terminate()
            (root.parent / "state/state").unlink(missing_ok=True)
            bare.append(run("-c", "pass")[0])
    took, reference = median(times) * 1000, median(bare) * 1000
    high = quantiles(times, n=10)[8] * 1000
    print(
        f"{'agent, start to first verdict':<44}{took:8.0f} ms   bare {reference:5.1f} ms   p90 {high:5.0f} ms"
    )


def main() -> None:
    """Print the figures."""
    command = ("-m", "nodeguard.cli.main")
    compare("check, this machine", *command, "check")
    compare("check, recorded 8 GPUs and 8 ports", *command, "check", "--from", str(BUNDLE))
    compare("explain xid 79", *command, "explain", "xid", "79")
    compare("--version", *command, "--version")
    first_verdict()


if __name__ == "__main__":
    main()
