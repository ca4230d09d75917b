"""GPU time that training jobs lose to faults with and without drains, and when drains lose more than they
save.

`python bench/drain_savings.py [--worlds N] [--days N] [--seed N]`. 7,500 nodes of eight GPUs run jobs. Some
faults leave work that is dead or hangs, and some findings are about work that would go on. What is not known
of a site is drawn from `RANGES`. The limits of drains and the budget of a check are the defaults, and the
policy's own code decides which drain begins. Each interval has 95% of the worlds. The search for the worst
corner draws worlds at the ends of the ranges.

Assumptions, beside the ranges. A job waits as a whole for each of its nodes. Its restart takes as long after
an eviction as after a person's drain. The eviction of a pod with a process that not even SIGKILL ends does
not help, although the controller of a Job may replace it. A finding about work that would go on costs
nothing without drains: the work ends by itself. No check is suppressed, and no failure domain degraded: both
would forbid harmful drains.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from random import Random

from msgspec import Struct

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_limits import DrainUsage, DrainUse, within_limits
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement, place_node
from nodeguard.model.inventory import ObservedMarks
from nodeguard.model.policy import Policy
from nodeguard.simulate.figures import quantile
from nodeguard.simulate.fleet_topology import simulated_topology

NODES, GPUS = 7500, 8
MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365.0

# Seconds. From the fault to the finding, at most: the interval of readings. From the taint to the first
# eviction: the median of bench/drain.py. From the eviction to SIGKILL: the default of Kubernetes.
READING, EVICTION, POD_GRACE = 10.0, 0.29, 30.0

POLICY = Policy()
TOPOLOGY = simulated_topology(NODES)

# Ends of the ranges of what is not known of a site, between which the logarithm of a value is uniform. Those
# without a publication are assumptions.
RANGES: Mapping[str, tuple[float, float]] = {
    # Faults in 1,000 node-days. RSC-2 and RSC-1: Kokolis et al., arXiv 2410.21680. Llama 3, 419 in 54 days on
    # 16,384 GPUs, has 3.8: Grattafiori et al., arXiv 2407.21783, table 5.
    "faults": (2.34, 6.5),
    # Share of them that `gpu-lost` or `driver-unresponsive` finds. Of the 419 of Llama 3, 148 were faulty
    # GPUs and 17 failures of the GSP: the upper end, since not each of these GPUs was lost.
    "evicted": (0.1, 0.4),
    # Share of these with processes that do not end by themselves.
    "hanging": (0.1, 0.9),
    # Share of the hanging ones that wait for a person also after the time-out, as a pod does not end.
    "stuck": (0.1, 0.9),
    # Share of the stuck ones with a process that not even SIGKILL ends.
    "unkillable": (0.05, 0.5),
    # PyTorch's default for NCCL since its pull request 110947, and before.
    "timeout": (10 * MINUTE, 30 * MINUTE),
    # Until a person drains the node, on average; exponentially distributed.
    "person": (10 * MINUTE, 8 * HOUR),
    # FlashRecovery, 4,800 devices: arXiv 2509.03047. MegaScale, first of 2,048 GPUs: arXiv 2402.15627.
    "restart": (150.0, 1047.0),
    # Between checkpoints.
    "checkpoint": (10 * MINUTE, 4 * HOUR),
    # Nodes of the largest job; the logarithm of the size is uniform, by GPU time.
    "largest": (16.0, 2048.0),
    # Share of the nodes with work. RSC: more than 0.8.
    "busy": (0.7, 1.0),
    # Share of the jobs with a PodDisruptionBudget, or with devices, that forbid the drain.
    "forbidden": (0.05, 0.5),
    # Fatal findings about work that would go on, in 1,000 node-days: false alarms, and true ones.
    "harmful": (0.001, 0.1),
    # Such findings on many nodes at once, in a year, as after a change of the driver.
    "bursts": (0.05, 2.0),
}

World = Mapping[str, float]


def drawn_world(random: Random, *, ends: bool = False) -> World:
    """Return a world with each value from its range. ends: only from the ends of the ranges."""
    return {
        name: random.choice((low, high)) if ends else low * (high / low) ** random.random()
        for name, (low, high) in RANGES.items()
    }


class Fault(Struct, frozen=True):
    """A fatal finding of a check with evictions, on a node with work. Times are in seconds."""

    at: float
    node: int
    job: int
    """Nodes of the job."""
    ends_at: float
    """When the wait ends without a drain; of a harmful finding, when a person removes its cause."""
    redone: float
    """Time of work since the last checkpoint, and of the restart."""
    is_harmful: bool = False
    """Whether the work would go on."""
    is_unkillable: bool = False
    """Whether its pods do not end by their eviction."""
    may_leave: bool = True
    """Whether the pods may be evicted, but for the limits."""
    delay: float = 0.0
    """Seconds from the fault to the taint."""


def drawn_faults(world: World, random: Random, days: float) -> list[Fault]:
    """Return the faults of some days, in no order."""
    per_day = NODES * world["busy"] / 1000
    dead = times(random, world["faults"] * world["evicted"] * per_day, days)
    faults = [drawn_fault(world, random, at) for at in dead]
    for at in times(random, world["harmful"] * per_day, days):
        person = random.expovariate(1 / world["person"])
        faults.append(_fault(world, random, at, person, is_harmful=True))
    check = POLICY.budget.check
    for at in times(random, world["bursts"] / YEAR, days):
        person = random.expovariate(1 / world["person"])
        # The budget of the check limits how many nodes are marked within some time, and in all.
        for number in range(check.active):
            start = check.within * (number // check.new)
            if start < person:
                faults.append(_fault(world, random, at + start, person - start, is_harmful=True))
    return faults


def times(random: Random, rate: float, days: float) -> Iterable[float]:
    """Yield the seconds of events with a rate in a day."""
    at = random.expovariate(rate) * DAY
    while at < days * DAY:
        yield at
        at += random.expovariate(rate) * DAY


def drawn_fault(world: World, random: Random, at: float) -> Fault:
    """Return a fault with work that is dead or hangs."""
    person = random.expovariate(1 / world["person"])
    is_hanging = random.random() < world["hanging"]
    is_stuck = random.random() < world["stuck"]
    wait = min(person, inf if is_stuck else world["timeout"]) if is_hanging else 0.0
    is_unkillable = is_stuck and random.random() < world["unkillable"]
    return _fault(world, random, at, wait, is_unkillable=is_unkillable)


def _fault(
    world: World,
    random: Random,
    at: float,
    wait: float,
    *,
    is_harmful: bool = False,
    is_unkillable: bool = False,
) -> Fault:
    """Return a fault. wait: seconds, see Fault.ends_at."""
    return Fault(
        at,
        random.randrange(NODES),
        job=int(world["largest"] ** random.random()),
        ends_at=at + wait,
        redone=world["restart"] + random.random() * world["checkpoint"],
        is_harmful=is_harmful,
        is_unkillable=is_unkillable,
        may_leave=random.random() >= world["forbidden"],
        delay=random.uniform(0.0, READING) + POLICY.grace.quarantine,
    )


def node_placements() -> dict[str, NodePlacement]:
    """Return the placements of the nodes, by uid."""
    paths: dict[int, list[str]] = {}
    for path, members in TOPOLOGY.domains.items():
        for node in members:
            paths.setdefault(node, []).append(path)
    return {
        node.key: place_node(POLICY, node, ObservedMarks(), domains=paths[index])
        for index, node in enumerate(TOPOLOGY.nodes)
    }


PLACEMENTS = node_placements()


def domain_size(budget: str) -> int:
    """Return the number of nodes of a failure domain."""
    return len(TOPOLOGY.domains[budget.removeprefix(DOMAIN)])


def drain_begins(faults: Sequence[Fault]) -> dict[int, float]:
    """Return when the drain of each fault begins, by its index; faults without a drain are left out."""
    arriving = sorted(
        (fault.at + fault.delay + EVICTION, index) for index, fault in enumerate(faults) if fault.may_leave
    )
    turns = [at for at, _ in arriving]
    heapq.heapify(turns)
    waiting: dict[str, tuple[int, DrainCandidate]] = {}
    running: dict[str, float] = {}
    begins: dict[int, float] = {}
    recent: list[float] = []
    arriving.reverse()
    while turns:
        now = heapq.heappop(turns)
        while arriving and arriving[-1][0] <= now:
            at, index = arriving.pop()
            node = TOPOLOGY.nodes[faults[index].node]
            candidate = DrainCandidate(node.key, node.name, f"fault-{index}", at, ("gpu-lost",))
            waiting[candidate.resource] = index, candidate
        waiting = {name: item for name, item in waiting.items() if faults[item[0]].ends_at > now}
        if not waiting:
            continue
        running = {uid: end for uid, end in running.items() if end > now}
        recent = [begin for begin in recent if now - begin < HOUR]
        usage = DrainUsage(
            tuple(map(DrainUse, running)), tuple(DrainUse("", {}, now - begin) for begin in recent)
        )
        candidates = [candidate for _, candidate in waiting.values()]
        for candidate in within_limits(candidates, usage, POLICY.drain.limits, PLACEMENTS, domain_size):
            if not candidate.blocker:
                index, _ = waiting.pop(candidate.resource)
                duration = POLICY.drain.finish_within if faults[index].is_unkillable else POD_GRACE
                begins[index] = now
                running[candidate.uid] = now + duration
                recent.append(now)
                heapq.heappush(turns, now + duration)
                heapq.heappush(turns, now + HOUR)
    return begins


class Outcome(Struct, frozen=True):
    """GPU-hours a day that jobs lose to faults, without and with drains."""

    without: float
    drained: float
    harm: float
    """Of these, lost by drains of work that would have gone on."""
    drains: float
    """A day."""

    @property
    def saved(self) -> float:
        """Return the GPU-hours a day that drains save."""
        return self.without - self.drained


def outcome(world: World, random: Random, days: float) -> Outcome:
    """Return what the jobs of a world lose."""
    faults = drawn_faults(world, random, days)
    begins = drain_begins(faults)
    without = drained = harm = 0.0
    for index, fault in enumerate(faults):
        gpu_hours = fault.job * GPUS / HOUR
        begin = begins.get(index, inf)
        if fault.is_harmful:
            lost = fault.redone * gpu_hours if index in begins else 0.0
            harm += lost
            drained += lost
            continue
        ends_at = fault.ends_at if fault.is_unkillable else min(fault.ends_at, begin + POD_GRACE)
        without += (fault.ends_at - fault.at + fault.redone) * gpu_hours
        drained += (ends_at - fault.at + fault.redone) * gpu_hours
    return Outcome(without / days, drained / days, harm / days, len(begins) / days)


def interval(values: Sequence[float]) -> str:
    """Return the median of some values, and the range of the middle 95%."""
    low, middle, high = (quantile(values, share) or 0.0 for share in (0.025, 0.5, 0.975))
    return f"{middle:10,.1f}   ({low:,.1f} to {high:,.1f})"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the median of what drains save in some worlds, and the share of those in which they lose."""
    saved = [found.saved for found in outcomes]
    return f"{quantile(saved, 0.5) or 0.0:10,.1f} ({sum(value < 0 for value in saved) / len(saved):4.0%})"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Simulate what drains save.")
    parser.add_argument("--worlds", type=int, default=1000, help="worlds that are drawn (%(default)s)")
    parser.add_argument("--days", type=float, default=100.0, help="days of each world (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (%(default)s)")
    options = parser.parse_args()
    random = Random(options.seed)
    worlds = []
    for _ in range(options.worlds):
        world = drawn_world(random)
        worlds.append((world, outcome(world, random, options.days)))
    found = [result for _, result in worlds]
    print(f"{options.worlds} worlds of {options.days:g} days, {NODES} nodes of {GPUS} GPUs; GPU-hours a day")
    for title, values in (
        ("lost without drains", [result.without for result in found]),
        ("lost with drains", [result.drained for result in found]),
        ("saved", [result.saved for result in found]),
        ("lost by harmful drains", [result.harm for result in found]),
        ("drains a day", [result.drains for result in found]),
        ("saved, share of the loss, %", [100 * result.saved / result.without for result in found]),
    ):
        print(f"{title:30}{interval(values)}")
    print(f"drains lose more than they save in {sum(result.saved < 0 for result in found)} worlds")
    print("saved in the fifth of worlds with the lowest, and the highest value (drains lose in):")
    part = max(1, len(worlds) // 5)
    for name in RANGES:
        ordered = [result for _, result in sorted(worlds, key=lambda item: item[0][name])]
        print(f"    {name:12}{summary(ordered[:part])}{summary(ordered[-part:])}")
    search_corners(random, options.worlds, options.days)


def search_corners(random: Random, count: int, days: float) -> None:
    """Print the worlds at the ends of the ranges in which drains lose most, simulated again."""
    corners = []
    for _ in range(count):
        world = drawn_world(random, ends=True)
        corners.append((outcome(world, random, days).saved, world))
    losing = [world for saved, world in corners if saved < 0]
    print(f"drains lose more than they save in {len(losing)} of {count} corners; share with the lower end:")
    for name, (low, _) in RANGES.items():
        if losing:
            print(f"    {name:12}{sum(world[name] == low for world in losing) / len(losing):6.0%}")
    for _, world in sorted(corners, key=lambda item: item[0])[:3]:
        again = outcome(world, random, 10 * days)
        print(f"worst corner: saved {again.saved:,.1f}, of it harm {again.harm:,.1f}: {world}")


if __name__ == "__main__":
    main()
