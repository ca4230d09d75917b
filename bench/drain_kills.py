"""Kills of the leader in drains on a real control plane, and what became of the evictions.

`python bench/drain_kills.py [--kills 200] [--seed 1]`. In each kill two more nodes have a fault, and the
leader is killed up to 0.3 s after a step of their drains; another aggregator takes over at once, as the lease
is emptied. The API server records when it received and answered each eviction. An eviction is in flight if
the killed leader has sent it and the API server has not answered. Prints its progress; after SIGINT or
SIGTERM it waits for the drains that run, and prints the figures of the kills until then. Exits with 1 if a
pod is evicted twice, outside of a recorded set or not at all, or if a drain does not succeed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from types import FrameType

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.simulate.figures import quantile
from tests.controlplane.cluster import cluster
from tests.e2e.drain_kill_records import DrainKills
from tests.e2e.drain_kills import kill_leaders


def main() -> int:
    """Print the figures. Returns the exit status."""
    parser = ArgumentParser(prog="python bench/drain_kills.py", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills of the leader (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the instants (%(default)s)")
    options = parser.parse_args()
    progress = Progress()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, progress.stop)
    with TemporaryDirectory() as directory:
        random = Random(options.seed)
        done = kill_leaders(cluster, Path(directory), options.kills, random, progress=progress.record)
    print(f"{len(done.kills)} kills with seed {options.seed} in {progress.seconds:.0f} s")
    if not done.kills:
        return 1
    print_figures(done)
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")
    problems = done.problems()
    print("\n".join(problems) or "each pod was evicted once, and each drain succeeded")
    return 1 if problems else 0


class Progress:
    """Prints the progress every ten kills, and ends the run after a signal."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._goes_on = True

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def record(self, kills: int, evicted: int) -> bool:
        """Record the kills and the evicted pods until now. Returns whether the run goes on."""
        if kills % 10 == 0:
            print(f"{kills:5} kills   {self.seconds:6.0f} s   {evicted:5} pods evicted", flush=True)
        return self._goes_on

    def stop(self, number: int, _: FrameType | None) -> None:
        """Handle a signal. A second one ends the process."""
        signal.signal(number, signal.SIG_DFL)
        print("ends after this kill", flush=True)
        self._goes_on = False


def print_figures(done: DrainKills) -> None:
    """Print what the kills hit, what was evicted, and the times of the takeovers."""
    for phase, count in done.phases.most_common():
        print(f"    {phase:30}{count:5}")
    for name, taken in done.seconds_of_a_kill().items():
        print(f"{name:34}{median(taken):5.1f} s at the median, {max(taken):.1f} s at most")
    print(f"evictions in flight at a kill     {done.in_flight():5}")
    withdrawn = sum(states["Cancelled"] for states in done.states.values())
    print(f"drains withdrawn and made again    {withdrawn:5}")
    print(f"pods evicted                      {len(done.evicted):5}")
    print(f"pods evicted twice                {len(done.twice):5}")
    print(f"pods evicted outside of a set     {len(done.outside):5}")
    seconds = done.takeovers()
    low, high = (quantile(seconds, share) or 0.0 for share in (0.025, 0.975))
    print(
        f"takeover to first eviction        p50 {median(seconds):.2f} s   95% from {low:.2f} to {high:.2f} s"
        f"   at most {max(seconds):.2f} s   ({len(seconds)} takeovers with pods to evict)"
    )


if __name__ == "__main__":
    sys.exit(main())
