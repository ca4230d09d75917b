"""Random worlds with invariants: what they reach, and those that break an invariant.

`python bench/worlds.py` runs 2,000 worlds in about two minutes of one core, `--worlds 50000` the number for
a release. A world is a small fleet with agents, operators, an API server and an aggregator. tests/worlds has
the invariants; the tests run 1,000 other worlds.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.cli.usage import whole_number
from tests.worlds.campaign import Campaign, run_campaign

# Worlds by default, the first seed, beyond those of the tests, and worlds of one task.
WORLDS, SEED, _TASK = 2_000, 1_000_000, 100


def main() -> int:
    """Run the worlds and print the table. Returns the exit status: 1 if an invariant is broken."""
    parser = ArgumentParser(prog="python bench/worlds.py", description=__doc__)
    add = parser.add_argument
    add("--worlds", metavar="N", type=whole_number(1, 10_000_000), default=WORLDS, help="worlds (2000)")
    add("--seed", metavar="N", type=whole_number(0, 2**31), default=SEED, help="first seed (1000000)")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    began, counts, failures = time.perf_counter(), Counter[str](), 0
    seeds = range(options.seed, options.seed + options.worlds, _TASK)
    with ProcessPoolExecutor(options.jobs) as pool:
        end = options.seed + options.worlds
        tasks = [pool.submit(run_campaign, seed, min(_TASK, end - seed)) for seed in seeds]
        for task in as_completed(tasks):
            campaign: Campaign = task.result()
            counts.update(campaign.counts)
            failures += len(campaign.failures)
            for failure in campaign.failures:
                print(f"{failure}\n", flush=True)
    for name, count in sorted(counts.items()):
        if not name.startswith("worlds"):
            print(f"{name:<28}{count:>12,}{counts[f'worlds with {name}']:>10,} worlds")
    took = time.perf_counter() - began
    print(
        f"{options.worlds:,} worlds from seed {options.seed:,} in {took:,.0f} s: "
        f"{failures} break an invariant"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
