"""Evaluation of the diagnosis: many episodes of each shared fault and rollout, and normal days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from msgspec import Struct

from bench.evaluation.episode import (
    BEFORE,
    Episode,
    NormalDays,
    fault_episode,
    normal_days,
    rollout_episode,
    without_diagnosis,
)
from bench.evaluation.rollouts import Rollout, bad_agent, rollout_title
from bench.evaluation.rows import (
    FaultRow,
    NormalDaysRow,
    RolloutRow,
    fault_row,
    normal_days_row,
    rollout_row,
)
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.policy import Policy
from nodeguard.model.signal import Signal
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fleet_topology import SimulatedTopology, simulated_topology
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS

# The first seed that no constant of the diagnosis was chosen by: only figures of such seeds are evidence.
HELD_OUT = 10_000

_MINUTE, _HOUR = 60.0, 3600.0

# Checks of each way to vote: not at all, for locations, and for versions.
_CHECKS = ("gpu-reset-required", "port-down", "nvlink-down", "nic-firmware-dead", "driver-library-mismatch")

ROLLOUTS = (
    *(
        Rollout(check, share, lasts)
        for check in _CHECKS
        for share in (0.01, 0.1, 1.0)
        for lasts in (0.0, 30 * _MINUTE, 2 * _HOUR, 8 * _HOUR)
    ),
    Rollout("gpu-thermal-slowdown", 1.0, 2 * _HOUR, by_rack=True),
)


class EvaluationPlan(Struct, frozen=True):
    """Size of the evaluation. nodes: of the fleet. episodes: of each kind of fault. compares: whether each
    runs again without diagnosis. rollout_runs: of each rollout. days: normal ones. before: normal seconds
    before a fault. seed: the first; each run has its own. kinds: of shared faults; those that do not fit the
    fleet are left out.
    """

    nodes: int = 2560
    episodes: int = 20
    compares: bool = False
    rollout_runs: int = 4
    days: int = 20
    before: float = BEFORE
    seed: int = 1
    kinds: tuple[str, ...] = tuple(SHARED_FAULT_KINDS)
    rollouts: tuple[Rollout, ...] = ROLLOUTS


class EvaluationResult(Struct, frozen=True):
    """Result of the evaluation. unfit: kinds of shared faults that do not fit the fleet."""

    plan: EvaluationPlan
    faults: tuple[FaultRow, ...]
    rollouts: tuple[RolloutRow, ...]
    normal_days: NormalDaysRow | None
    unfit: tuple[str, ...] = ()
    version: int = 1


class EvaluationInputs(Struct, frozen=True):
    """Inputs of every process. policy: with the labels of the simulated fleet."""

    catalogue: Catalogue
    signals: Mapping[str, Signal]
    policy: Policy


def evaluate(
    inputs: EvaluationInputs, plan: EvaluationPlan, jobs: int, log: Callable[[str], None]
) -> EvaluationResult:
    """Run the evaluation. jobs: number of processes. log: called with the name of each step."""
    fleet = simulated_topology(plan.nodes)
    unfit = tuple(kind for kind in plan.kinds if not SHARED_FAULT_KINDS[kind].fits(fleet))
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(inputs,)) as pool:
        faults = []
        for kind in plan.kinds:
            if kind in unfit or not plan.episodes:
                continue
            log(f"{kind}: {count_noun(plan.episodes, 'episode')}")
            tasks = [
                (kind, seed, plan.nodes, diagnoses, plan.before)
                for diagnoses in ((True, False) if plan.compares else (True,))
                for seed in range(plan.seed, plan.seed + plan.episodes)
            ]
            episodes = list(pool.map(_fault, tasks))
            faults.append(fault_row(kind, episodes[: plan.episodes], episodes[plan.episodes :]))
        rollouts = []
        for rollout in plan.rollouts if plan.rollout_runs else ():
            log(f"rollout of {rollout_title(rollout)}: {count_noun(plan.rollout_runs, 'run')}")
            runs = [(rollout, seed, plan.nodes) for seed in range(plan.seed, plan.seed + plan.rollout_runs)]
            rollouts.append(rollout_row(rollout, list(pool.map(_rollout, runs))))
        if plan.days:
            log(count_noun(plan.days, "normal day"))
        days = [(plan.nodes, seed, plan.before) for seed in range(plan.seed, plan.seed + plan.days)]
        normal = normal_days_row(plan.nodes, list(pool.map(_normal_day, days))) if plan.days else None
    return EvaluationResult(plan, tuple(faults), tuple(rollouts), normal, unfit)


# The inputs of this process.
_inputs: list[EvaluationInputs] = []


def _begin(inputs: EvaluationInputs) -> None:
    _inputs[:] = [inputs]
    for cached in (_agent, _fleet, _bad_agent):
        cached.cache_clear()


@cache
def _agent() -> SimulatedAgent:
    return SimulatedAgent(_inputs[0].catalogue, _inputs[0].signals)


@cache
def _fleet(nodes: int) -> SimulatedTopology:
    return simulated_topology(nodes)


@cache
def _bad_agent(check: str) -> SimulatedAgent:
    return bad_agent(_inputs[0].catalogue, _inputs[0].signals, check)


def _fault(task: tuple[str, int, int, bool, float]) -> Episode:
    kind, seed, nodes, diagnoses, before = task
    policy = _inputs[0].policy if diagnoses else without_diagnosis(_inputs[0].policy)
    return fault_episode(_agent(), _fleet(nodes), kind, seed, policy, before)


def _rollout(task: tuple[Rollout, int, int]) -> Episode:
    rollout, seed, nodes = task
    policy = _inputs[0].policy
    return rollout_episode(_agent(), _bad_agent(rollout.check), _fleet(nodes), rollout, seed, policy)


def _normal_day(task: tuple[int, int, float]) -> NormalDays:
    nodes, seed, before = task
    policy = _inputs[0].policy
    return normal_days(_agent(), _fleet(nodes), 1.0, seed, policy, before)
