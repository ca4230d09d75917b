"""False alarms of the check gpu-programs-die, and the time until it finds a GPU that kills programs.

`python bench/deaths.py [--days N] [--worlds N] [--faulty N] [--seed N]`. Simulates the Xids of applications
on shared nodes of eight GPUs and evaluates them with the agent's own code. What is not published is drawn
at random from the ranges in `World.drawn`. Each figure has an interval of 95%. The search for the worst
corner draws worlds at the ends of the ranges, and simulates the worst of them again with other numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import exp, log, sqrt
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import asdict

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.program_deaths import DIED, NodeWork, record_work
from nodeguard.model.observation import Event, Observation, Reading

GPUS = tuple(f"gpu/0000:{bus:02x}:00" for bus in range(0x10, 0x90, 0x10))
HOUR, DAY = 3600.0, 86_400.0
# Xids of applications on a node of eight GPUs in a day: twenty times the interruptions by hardware, 6.5 in
# 1,000 node-days (Meta RSC-1; RSC-2 2.3, Llama 3 3.8).
PUBLISHED = 0.13

TARGET = 0.1

TABLE = load_catalogue()[0]
LISTED = LatestReadings(
    [Reading("nvml", 0.0, tuple(Observation("nvml", gpu, signals={"gpu.answers": True}) for gpu in GPUS))],
    {},
    0.0,
)


class World(Struct, frozen=True):
    """What is not known of a site."""

    rate: float = PUBLISHED
    """Xids of applications on a node in a day, on average."""

    shape: float = 0.5
    """Shape of the gamma distribution of the rate over nodes."""

    chain: float = 3.0
    """Xids of one faulty program until it is fixed, on average."""

    as_new_job: float = 0.1
    """Share of faulty programs that come back as a new job, not as the same container."""

    same: float = 0.5
    """Chance that such a job gets the same GPU again."""

    pause: float = 0.3
    """Hours between two Xids of a program, on average."""

    users: int = 5
    """Users of a node."""

    busy: float = 0.7
    """Share of the time for which a GPU runs work."""

    trial: float = 0.0
    """Share of faulty programs that run on one GPU, as if it were kept for trials."""

    uptime: float = 20.0
    """Days since the boot of a node, on average."""

    @classmethod
    def drawn(cls, random: Random, *, ends: bool = False) -> World:
        """Return a world with every value from its range. ends: only from the ends of the ranges."""

        def between(low: float, high: float) -> float:
            if ends:
                return random.choice((low, high))
            return low * float((high / low) ** random.random())

        return cls(
            rate=between(PUBLISHED / 3, PUBLISHED * 3),
            shape=between(0.2, 2.0),
            chain=between(1.0, 10.0),
            as_new_job=between(0.01, 0.3),
            same=between(0.125, 1.0),
            pause=between(0.05, 2.0),
            users=round(between(1, 20)),
            busy=between(0.3, 0.95),
            trial=between(0.01, 0.5),
            uptime=between(5.0, 60.0),
        )


class Failure(Struct, frozen=True, order=True):
    """An Xid of an application. at: seconds since boot. gpu: index."""

    at: float
    gpu: int
    user: int
    job: int


def failures(world: World, random: Random, days: float, first_job: int) -> Iterator[Failure]:
    """Yield the Xids of faulty programs on one node, in no order."""
    rate = random.gammavariate(world.shape, world.rate / world.shape) / world.chain
    trial = random.randrange(len(GPUS))
    at, job = 0.0, first_job
    while rate > 0:
        at += random.expovariate(rate) * DAY
        if at > days * DAY:
            return
        user, gpu, time = random.randrange(world.users), random.randrange(len(GPUS)), at
        if random.random() < world.trial:
            gpu = trial
        is_new_job = random.random() < world.as_new_job
        job += 1
        while time <= days * DAY:
            yield Failure(time, gpu, user, job)
            if random.random() < 1 / world.chain:
                break
            time += random.expovariate(1 / (world.pause * HOUR))
            if is_new_job:
                job += 1
                gpu = gpu if random.random() < world.same else random.randrange(len(GPUS))


class Node:
    """A node that is evaluated. busy: share of the time for which its GPUs run work."""

    def __init__(self, world: World) -> None:
        self._busy = world.busy
        self._work = NodeWork()
        self._read = 0.0
        self._pid = 1000

    def meets(self, failure: Failure) -> str:
        """Return the verdict on the GPU of a failure, empty for none."""
        self._pid += 1
        began = self._read + (failure.at - self._read) * (1 - self._busy)
        observations = [
            Observation(
                "nvml", gpu, signals={"gpu.process_owners": f"{index}:{began:.2f}:u{index}:j{index}:p{index}"}
            )
            for index, gpu in enumerate(GPUS)
            if index != failure.gpu
        ]
        owner = f"{self._pid}:{failure.at - 60:.2f}:u{failure.user}:job{failure.job}:p{failure.job}"
        event = Event("gpu.xid.line", failure.at, fields={"xid": 13, "pid": self._pid, "owner": owner})
        readings = [
            Reading("nvml", failure.at, tuple(observations)),
            Reading("kmsg", failure.at, (Observation("kmsg", GPUS[failure.gpu], events=(event,)),)),
        ]
        self._read = failure.at
        self._work, found = record_work(self._work, readings, LISTED, {}, TABLE, failure.at)
        events = [event for row in found.values() for event in row if event.signal == DIED]
        return str(events[0].fields["verdict"]) if events else ""


def false_suspects(world: World, random: Random, days: float) -> tuple[int, float]:
    """Return the healthy GPUs that became suspect, and the days that were simulated."""
    found, simulated = 0, 0.0
    while simulated < days:
        up = min(random.expovariate(1 / world.uptime), days - simulated + 1.0)
        simulated += up
        row = sorted(failures(world, random, up, 0))
        if len(row) > 1:
            node = Node(world)
            found += sum(node.meets(failure) == "suspect" for failure in row)
    return found, simulated


class Oracle:
    """The likelihood ratio of a GPU that kills programs to none, where all values of the world are known.

    A cumulative sum, the test with the shortest delay for its false alarms (Lorden 1971): each death adds the
    logarithm of how much likelier it is on such a GPU, and the time without one subtracts. Only the rate of
    the node is estimated, from its own deaths. deaths: a day, on a GPU that kills.
    """

    def __init__(self, world: World, deaths: float) -> None:
        self._world, self._deaths = world, deaths
        self._programs = world.shape
        self._jobs: set[int] = set()
        self._last: dict[int, Failure] = {}
        self._scores: dict[int, tuple[float, float]] = {}

    def meets(self, failure: Failure) -> float:
        """Return the logarithm of the ratio on the GPU of a failure."""
        world, day = self._world, failure.at / DAY
        score, at = self._scores.get(failure.gpu, (0.0, day))
        score = max(0.0, score - self._deaths * (day - at))
        if failure.job not in self._jobs:
            node_rate = self._programs / (world.shape * world.chain / world.rate + day)
            new = node_rate / len(GPUS) / world.users
            again = self._again(failure)
            self._programs += new / (new + again)
            score += log(self._deaths / world.users / (new + again))
        self._jobs.add(failure.job)
        self._last[failure.user] = failure
        self._scores[failure.gpu] = score, day
        return score

    def _again(self, failure: Failure) -> float:
        """Return the rate, a day, of the user's latest faulty program as a new job on the GPU."""
        world, last = self._world, self._last.get(failure.user)
        if last is None:
            return 0.0
        place = (world.same if failure.gpu == last.gpu else 0.0) + (1 - world.same) / len(GPUS)
        pause = world.pause * HOUR / DAY
        pace = exp(-(failure.at - last.at) / DAY / pause) / pause
        return world.as_new_job * (1 - 1 / world.chain) * place * pace


def oracle_limit(world: World, random: Random, days: float, deaths: float) -> float:
    """Return the ratio that as many healthy nodes exceed as the target allows."""
    highest, simulated = [], 0.0
    while simulated < days:
        up = random.expovariate(1 / world.uptime)
        simulated += up
        oracle = Oracle(world, deaths)
        highest.append(
            max((oracle.meets(failure) for failure in sorted(failures(world, random, up, 0))), default=0.0)
        )
    return sorted(highest, reverse=True)[int(TARGET * simulated / 1000)]


def hours_until_found(
    world: World, random: Random, an_hour: float, kills: float, is_found: Callable[[Failure], bool]
) -> float:
    """Return hours until a GPU is found that kills a share of its processes. an_hour: its processes."""
    healthy = random.expovariate(1 / world.uptime)
    before = sorted(failures(world, random, healthy + 2.0, 0))
    began, at, job = healthy * DAY, healthy * DAY, 1_000_000
    killed = []
    while at < began + 2 * DAY:
        at += random.expovariate(an_hour) * HOUR
        job += 1
        if random.random() < kills:
            killed.append(Failure(at, 4, random.randrange(world.users), job))
    for failure in sorted([*before, *killed]):
        if is_found(failure) and failure.gpu == 4 and failure.at >= began:
            return (failure.at - began) / HOUR
    return 48.0


def per_thousand(found: int, days: float) -> str:
    """Return a rate in 1,000 node-days with its interval of 95% (Poisson, by Byar's approximation)."""

    def bound(count: int, z: float) -> float:
        return count * (1 - 1 / (9 * count) + z / (3 * sqrt(count))) ** 3 if count else 0.0

    low, high = bound(found, -1.96), bound(found + 1, 1.96)
    scale = 1000 / days
    rate = f"{found * scale:.3f} [{low * scale:.3f}, {high * scale:.3f}]"
    return f"{rate} in 1,000 node-days ({found} in {days:,.0f})"


def share(count: int, total: int) -> str:
    """Return a share with its interval of 95% (Wilson)."""
    z, part = 1.96, count / total
    middle, width = (
        part + z * z / (2 * total),
        z * sqrt(part * (1 - part) / total + z * z / (4 * total * total)),
    )
    low, high = (middle - width) / (1 + z * z / total), (middle + width) / (1 + z * z / total)
    return f"{part:.0%} [{low:.0%}, {high:.0%}]"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure the check gpu-programs-die.")
    parser.add_argument("--days", type=float, default=200_000, help="node-days of each figure (%(default)s)")
    parser.add_argument("--worlds", type=int, default=100, help="worlds that are drawn (%(default)s)")
    parser.add_argument(
        "--faulty", type=int, default=500, help="GPUs that kill, of each figure (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (%(default)s)")
    options = parser.parse_args()
    random = Random(options.seed)
    print(f"False suspects; the target is {TARGET} in 1,000 node-days")
    print("  usual values:", per_thousand(*false_suspects(World(), random, options.days)))
    found, days = 0, 0.0
    for _ in range(options.worlds):
        more, simulated = false_suspects(World.drawn(random), random, options.days / options.worlds)
        found, days = found + more, days + simulated
    print(f"  {options.worlds} worlds, drawn:", per_thousand(found, days))
    corners = []
    for _ in range(options.worlds):
        world = World.drawn(random, ends=True)
        more, simulated = false_suspects(world, random, options.days / 10)
        corners.append((more / simulated * 1000, world))
    missed = [world for rate, world in corners if rate > TARGET]
    print(f"  {len(corners) - len(missed)} of {len(corners)} corners of the ranges are within the target")
    print("  all others have", common(missed))
    for _, world in sorted(corners, key=lambda corner: corner[0], reverse=True)[:3]:
        print("  worst corner:", per_thousand(*false_suspects(world, random, options.days / 2)), world)
    print("A GPU that kills one process in three: found within an hour; median. Usual values, but for:")
    for an_hour in (6, 12, 24):
        deaths = an_hour / 3
        possible = 1 - exp(-deaths) * (1 + deaths)
        print(f"  {an_hour} processes an hour: two deaths within an hour in {possible:.0%}")
        for users in (1, 2, 5, 20):
            for uptime in (2.0, 20.0):
                world = World(users=users, uptime=uptime)
                limit = oracle_limit(world, random, options.days, deaths * 24)
                print(f"    {users} users, up for {uptime:.0f} days on average:", end=" ")
                print(delays(world, random, an_hour, options.faulty, nodeguard), end="; the oracle ")
                print(delays(world, random, an_hour, options.faulty, partial(oracle, deaths * 24, limit)))


def nodeguard(world: World) -> Callable[[Failure], bool]:
    """Return the test of the agent for a node."""
    node = Node(world)
    return lambda failure: node.meets(failure) == "suspect"


def oracle(deaths: float, limit: float, world: World) -> Callable[[Failure], bool]:
    """Return the test of an oracle for a node."""
    test = Oracle(world, deaths)
    return lambda failure: test.meets(failure) > limit


def delays(
    world: World,
    random: Random,
    an_hour: float,
    count: int,
    make_test: Callable[[World], Callable[[Failure], bool]],
) -> str:
    """Return the share of GPUs that kill one process in three that are found in an hour, and the median."""
    times = sorted(hours_until_found(world, random, an_hour, 1 / 3, make_test(world)) for _ in range(count))
    return f"{share(sum(time <= 1 for time in times), count)}, {times[count // 2]:.1f} h"


def common(worlds: list[World]) -> str:
    """Return the values that all of some worlds share."""
    if not worlds:
        return "nothing"
    rows = [asdict(world) for world in worlds]
    shared = {name: value for name, value in rows[0].items() if all(row[name] == value for row in rows)}
    return ", ".join(f"{name}={value}" for name, value in shared.items()) or "nothing in common"


if __name__ == "__main__":
    main()
