"""The table: each kind of shared fault planted many times, roll-outs that go wrong, and days as usual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from msgspec import Struct

from bench.simulation.episode import (
    BEFORE,
    Episode,
    QuietDays,
    enforcing,
    fault_episode,
    quiet_days,
    rollout_episode,
)
from bench.simulation.rollouts import Rollout, slipped
from bench.simulation.rows import FaultRow, NoiseRow, RolloutRow, fault_row, noise_row, rollout_row
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.policy import Policy
from nodeguard.model.signal import Signal
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fleet_topology import SimulatedTopology, simulated_topology
from nodeguard.simulate.random_faults import REFERENCE_NODES
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS

# Seeds that constants may be chosen by begin here, and there those that nobody has looked at before.
TUNING, HELD_OUT = 1, 10_000

_MIN, _HOUR = 60.0, 3600.0

ROLLOUTS = (
    *(
        Rollout("gpu-reset-required", share, lasts)
        for share in (0.01, 0.1, 1.0)
        for lasts in (0.0, 30 * _MIN, 2 * _HOUR, 8 * _HOUR)
    ),
    Rollout("gpu-thermal-slowdown", 1.0, 2 * _HOUR, by_rack=True),
)


# Roll-outs differ less from one run to the next than faults do, and each takes longer: so many times fewer.
_FEWER = 5


class Plan(Struct, frozen=True):
    """What is to be done. nodes: of the fleet of an episode. episodes: of each kind. days: as usual, of a
    fleet of FLEET nodes. before: seconds as usual before a fault, and before a day that counts. first: the
    first seed. kinds: of shared faults; rollouts: of those that go wrong.
    """

    nodes: int = 2560
    episodes: int = 20
    days: int = 20
    before: float = BEFORE
    first: int = TUNING
    kinds: tuple[str, ...] = tuple(SHARED_FAULT_KINDS)
    rollouts: tuple[Rollout, ...] = ROLLOUTS


class Table(Struct, frozen=True):
    """What came of it."""

    plan: Plan
    faults: tuple[FaultRow, ...]
    rollouts: tuple[RolloutRow, ...]
    noise: NoiseRow | None


class Knowledge(Struct, frozen=True):
    """What every process has to know."""

    catalogue: Catalogue
    signals: Mapping[str, Signal]
    policy: Policy


def table(known: Knowledge, plan: Plan, jobs: int, tell: Callable[[str], None]) -> Table:
    """Do it, in so many processes. tell: hears what is being done."""
    seeds = range(plan.first, plan.first + plan.episodes)
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(known,)) as pool:
        faults = []
        for kind in plan.kinds:
            tell(kind)
            both = [(seed, blames) for blames in (True, False) for seed in seeds]
            done = list(pool.map(_fault, [(kind, seed, plan.nodes, yes, plan.before) for seed, yes in both]))
            faults.append(fault_row(kind, done[: plan.episodes], done[plan.episodes :]))
        rollouts = []
        for one in plan.rollouts:
            tell(f"roll-out of {one.check}")
            some = seeds[: max(1, plan.episodes // _FEWER)]
            runs = list(pool.map(_rollout, [(one, seed, plan.nodes) for seed in some]))
            rollouts.append(rollout_row(one, runs))
        tell("days as usual")
        days = [(seed, plan.before) for seed in range(plan.first, plan.first + plan.days)]
        noise = noise_row(list(pool.map(_noise, days))) if plan.days else None
    return Table(plan, tuple(faults), tuple(rollouts), noise)


# Of this process: what it knows.
_known: list[Knowledge] = []


def _begin(known: Knowledge) -> None:
    _known[:] = [known]
    for made in (_agent, _fleet, _wrong):
        made.cache_clear()


@cache
def _agent() -> SimulatedAgent:
    return SimulatedAgent(_known[0].catalogue, _known[0].signals)


@cache
def _fleet(nodes: int) -> SimulatedTopology:
    return simulated_topology(nodes)


@cache
def _wrong(check: str) -> SimulatedAgent:
    """Agents of a catalogue in which a check is wrong."""
    return slipped(_known[0].catalogue, _known[0].signals, check)


def _fault(task: tuple[str, int, int, bool, float]) -> Episode:
    kind, seed, nodes, blames, before = task
    return fault_episode(
        _agent(), _fleet(nodes), kind, seed, enforcing(_known[0].policy, blames=blames), before
    )


def _rollout(task: tuple[Rollout, int, int]) -> Episode:
    one, seed, nodes = task
    return rollout_episode(_agent(), _wrong(one.check), _fleet(nodes), one, seed, enforcing(_known[0].policy))


def _noise(task: tuple[int, float]) -> QuietDays:
    seed, before = task
    return quiet_days(_agent(), _fleet(REFERENCE_NODES), 1.0, seed, enforcing(_known[0].policy), before)
