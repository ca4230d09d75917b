"""Duration of a plan for 7,500 nodes, beside the encoding of 7,500 small objects as JSON.

`python bench/plan.py`. Each state of the fleet twice: planned from scratch, as at the start of an aggregator,
and after one report; medians of both. Withheld: 1,000 nodes are unhealthy, and the budget is used up.
Silent: no agent of 30,000 reports any more, and then one of them in each second, as when all connect again.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.model.policy import Budget, TopologyLabels
from tests.fleet.scene import AT_ONCE, CHECKS, Fleet, finding, in_order

NODES = 7500
RUNS = 7
CHANGES = 50
SILENT = 30_000

# Budgets that allow next to no mark.
TIGHT = replace(AT_ONCE, budget=Budget())


def main() -> None:
    """Print the figures."""
    objects = [
        {"node": f"node-{number}", "uid": f"uid-{number}", "gpus": 8, "ok": True} for number in range(NODES)
    ]
    row("reference: json of 7,500 objects", [timed(lambda: json.dumps(objects)) for _ in range(RUNS)])
    for name, unhealthy, policy in (
        ("healthy", 0, AT_ONCE),
        ("100 unhealthy and marked", 100, AT_ONCE),
        ("1,000 unhealthy and marked", 1000, AT_ONCE),
        ("1,000 unhealthy and withheld", 1000, TIGHT),
    ):
        fleet = Fleet(NODES, policy)
        for number in range(unhealthy):
            fleet.report(number, finding(CHECKS[number % len(CHECKS)]))
        fleet.planner.tick(fleet.now)
        fleet.carry_out()
        row(f"{name}: from scratch", [plan_from_scratch(fleet) for _ in range(RUNS)])
        row(f"{name}: nothing new", [timed(fleet.plan) for _ in range(RUNS)])
        row(f"{name}: one recovers, then fails", changes(fleet))
        row(f"{name}: a tick", [timed(partial(fleet.planner.tick, fleet.now)) for _ in range(RUNS)])
    silent(wide_fleet())
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


def wide_fleet() -> Fleet:
    """Return a healthy fleet of SILENT nodes in pods of 2,048, leaves of 64 and racks of 8 nodes."""
    fabric = TopologyLabels("fabric", ("pod", "leaf", "rack"))
    fleet = Fleet(0, replace(AT_ONCE, topologies=(fabric,)))
    for number in range(SILENT):
        labels = {"pod": f"p{number // 2048}", "leaf": f"l{number // 64}", "rack": f"r{number // 8}"}
        fleet.add(number, labels=labels)
    return fleet


def silent(fleet: Fleet) -> None:
    """Print the durations of the tick and plan of a second, while all agents are silent."""

    def second() -> None:
        fleet.planner.tick(fleet.now)
        fleet.plan()

    second()
    fleet.wall, fleet.mono = fleet.wall + 60.0, fleet.mono + 60.0
    row(f"{SILENT:,} silent: the second in which they are", [timed(second)])
    taken = []
    for number in range(CHANGES):
        fleet.report(number * 7)
        fleet.wall, fleet.mono = fleet.wall + 1.0, fleet.mono + 1.0
        taken.append(timed(second))
    row(f"{SILENT:,} silent: one reports, a tick and a plan", taken)


def plan_from_scratch(fleet: Fleet) -> float:
    """Return the seconds of the first plan of a planner that has just received everything."""
    fleet.restart()
    gc.collect()
    return timed(fleet.plan)


def changes(fleet: Fleet) -> list[float]:
    """Return the seconds of plans, each after one report that changes a healthy node."""
    taken = []
    for number in range(CHANGES):
        node = NODES - 1 - number // 2
        if number % 2:
            fleet.report(node, proven=(in_order(),))
        else:
            fleet.report(node, finding(CHECKS[number % len(CHECKS)]))
        taken.append(timed(fleet.plan))
    fleet.carry_out()
    return taken


def timed(function: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def row(name: str, taken: list[float]) -> None:
    print(f"{name:44}{median(taken) * 1000:9.2f} ms   {max(taken) * 1000:9.2f} ms at most")


if __name__ == "__main__":
    main()
