"""Backgrounds drawn at random: rates of usual faults, delays, operators' work and restarts. Pure.

Each range covers two orders of magnitude around its source, or is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from random import Random

from bench.evaluation.fleets import draw_fleet, log_uniform
from bench.evaluation.world import (
    Background,
    Delay,
    FaultRate,
    Fleet,
    JobStart,
    NodeChange,
    NodeFault,
    Path,
)

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0

# Onsets in 1,000 node-days, from and to. Source of the middle, except where noted: interruptions of a run
# on 16,384 H100 in 54 days (The Llama 3 herd of models, table 5), 4.3 in 1,000 node-days of 8 GPUs, by
# cause. Throttles, flaps, restarts of agents and contained errors are assumed.
_RATES: Mapping[str, tuple[float, float]] = {
    "throttled": (1.0, 100.0),
    "port-flap": (0.6, 60.0),
    "port-down": (0.036, 3.6),
    "nvlink-down": (0.05, 5.0),
    "gpu-lost": (0.12, 12.0),
    "ecc-uncontained": (0.075, 7.5),
    "row-remap-failed": (0.02, 2.0),
    "adapter-dead": (0.007, 0.7),
    "node-down": (0.04, 4.0),
    "unreachable": (0.5, 50.0),
    "ecc-contained": (0.45, 45.0),
}

# Share of the fleets without any throttles.
_NO_THROTTLES = 0.1

# The topology in which domains differ in their rate, and the depth of these domains.
_DIFFERS: Mapping[str, tuple[str, int]] = {
    "throttled": ("rack", 2),
    "port-flap": ("fabric", 2),
    "port-down": ("fabric", 2),
    "nvlink-down": ("nvlink", 1),
}

# Seconds that a usual fault lasts, from and to. Assumed: repairs take hours, throttles and restarts minutes.
_DURATIONS: Mapping[str, tuple[float, float]] = {
    "throttled": (2 * _MINUTE, 30 * _MINUTE),
    "port-flap": (1.0, 10.0),
    "node-down": (5 * _MINUTE, 4 * _HOUR),
    "unreachable": (10.0, 5 * _MINUTE),
}
_REPAIR = (_HOUR, 24 * _HOUR)

# Symptoms from which work on the node does not suffer, or the node is out of service anyway.
HARMLESS = frozenset({"port-flap", "unreachable", "ecc-contained", "node-down"})

# Share of flaps on nodes with a bad cable, and of such nodes. Assumed.
_OF_BAD_CABLES, _BAD_CABLES = 0.5, 0.002

# Seconds of usual operation before the planted cause, from and to, and observed after its start.
_BEFORE = (1 * _HOUR, 12 * _HOUR)
AFTER = 3 * _HOUR

# Gangs that start in a day in a fleet of 1,000 nodes, their nodes, and the share of these that lose a link.
_GANGS, _GANG_NODES, _GANG_FLAPS = (1.0, 100.0), (4, 512), (0.002, 0.1)


def draw_background(size_class: int, seed: int, attempt: int = 0) -> Background:
    """Return everything of a world but the planted cause."""
    chance = Random(f"{seed} {size_class} {attempt}")
    fleet = draw_fleet(size_class, chance)
    before = log_uniform(*_BEFORE, chance)
    until = before + AFTER
    rates = {symptom: _rate(symptom, fleet, chance) for symptom in _RATES}
    faults = [
        fault
        for symptom, rate in rates.items()
        for fault in _usual_faults(symptom, rate, fleet, until, chance)
    ]
    starts, gang_flaps = _gangs(fleet, until, chance)
    changes, work = _operators(fleet, until, chance)
    restarts = until * fleet.size / _DAY / 1000 * log_uniform(1.0, 100.0, chance)
    return Background(
        seed=seed,
        size_class=size_class,
        attempt=attempt,
        fleet=fleet,
        rates=rates,
        delay=Delay(
            log_uniform(0.5, 20.0, chance),
            chance.uniform(0.2, 1.2),
            chance.uniform(0.0, 0.2),
            chance.uniform(10.0, 60.0),
        ),
        before=before,
        until=until,
        faults=tuple(sorted((*faults, *gang_flaps, *work), key=lambda fault: (fault.onset, fault.node))),
        changes=tuple(sorted(changes, key=lambda change: (change.at, change.node))),
        starts=tuple(starts),
        agent_restarts=tuple(
            sorted(
                (chance.uniform(0.0, until), chance.randrange(fleet.size))
                for _ in range(_poisson(restarts, chance))
            )
        ),
        aggregator_restart=chance.uniform(before - _HOUR, until) if chance.random() < 0.3 else None,
    )


def _rate(symptom: str, fleet: Fleet, chance: Random) -> FaultRate:
    daily = log_uniform(*_RATES[symptom], chance) / 1000
    if symptom == "throttled" and chance.random() < _NO_THROTTLES:
        daily = 0.0
    topology, depth = _DIFFERS.get(symptom, ("", 0))
    shape = log_uniform(0.3, 30.0, chance)
    domains = fleet.domains_at(topology, depth) if topology else []
    factors = {path: chance.gammavariate(shape, 1 / shape) for path in domains}
    return FaultRate(daily, topology if domains else "", shape, factors)


def _usual_faults(
    symptom: str, rate: FaultRate, fleet: Fleet, until: float, chance: Random
) -> Iterator[NodeFault]:
    """Yield the usual faults of a symptom: independent of each other, given the factors of the domains."""
    weights = [1.0] * fleet.size
    for path, factor in rate.factors.items():
        for node in fleet.true[path]:
            weights[node] = factor
    count = _poisson(rate.daily * sum(weights) * until / _DAY, chance)
    nodes = chance.choices(range(fleet.size), cum_weights=list(accumulate(weights)), k=count)
    cables = chance.sample(range(fleet.size), max(1, round(_BAD_CABLES * fleet.size)))
    for node in nodes:
        if symptom == "port-flap" and chance.random() < _OF_BAD_CABLES:
            node = chance.choice(cables)  # noqa: PLW2901
        onset = chance.uniform(0.0, until)
        end = onset + log_uniform(*_DURATIONS.get(symptom, _REPAIR), chance)
        yield NodeFault(node=node, symptom=symptom, onset=onset, end=end, is_real=symptom not in HARMLESS)


def _gangs(fleet: Fleet, until: float, chance: Random) -> tuple[list[JobStart], list[NodeFault]]:
    """Return the starts of gangs on adjacent nodes, and the links that their nodes lose then."""
    starts, faults = list[JobStart](), list[NodeFault]()
    share = log_uniform(*_GANG_FLAPS, chance)
    clock_error = chance.gauss(0.0, log_uniform(0.1, 30.0, chance))
    expected = log_uniform(*_GANGS, chance) * fleet.size / 1000 * until / _DAY
    for number in range(_poisson(expected, chance)):
        count = round(log_uniform(_GANG_NODES[0], min(_GANG_NODES[1], fleet.size // 2), chance))
        first, at = chance.randrange(fleet.size - count + 1), chance.uniform(0.0, until)
        nodes = tuple(range(first, first + count))
        starts.append(JobStart(f"training/gang-{number}", at, at + clock_error, nodes))
        for node in nodes:
            if chance.random() < share:
                onset = at + chance.uniform(0.0, 2 * _MINUTE)
                faults.append(
                    NodeFault(node=node, symptom="port-flap", onset=onset, end=onset + 1.0, is_real=False)
                )
    return starts, faults


def _operators(fleet: Fleet, until: float, chance: Random) -> tuple[list[NodeChange], list[NodeFault]]:
    """Return cordons that stay, and in a third of the fleets a maintenance of a leaf or rack, with the faults
    of its nodes meanwhile.
    """
    cordoned = chance.sample(range(fleet.size), round(chance.uniform(0.0, 0.05) * fleet.size))
    changes = [NodeChange(0.0, node, unschedulable=True) for node in cordoned]
    if chance.random() > 1 / 3:
        return changes, []
    paths = [*fleet.domains_at("fabric", 2), *fleet.domains_at("rack", 2)]
    path, begin = chance.choice(paths), chance.uniform(0.0, until - 2 * _HOUR)
    work, faults = maintenance(fleet, path, begin, chance)
    return [*changes, *work], faults


def maintenance(
    fleet: Fleet, path: Path, begin: float, chance: Random
) -> tuple[list[NodeChange], list[NodeFault]]:
    """Return the cordons for a maintenance of at most 80 min, and the faults of its nodes meanwhile."""
    reason = chance.choice(("", "switch replaced"))
    symptom = "port-down" if path.startswith("fabric/") else "node-down"
    off = begin + chance.uniform(1.0, 15.0) * _MINUTE
    on = off + chance.uniform(5.0, 45.0) * _MINUTE
    end = on + chance.uniform(1.0, 20.0) * _MINUTE
    changes, faults = list[NodeChange](), list[NodeFault]()
    for node in fleet.true[path]:
        changes.append(NodeChange(begin, node, unschedulable=True, maintenance=reason))
        changes.append(NodeChange(end, node, unschedulable=False))
        onset, back = off + chance.uniform(0.0, 60.0), on + chance.uniform(0.0, 60.0)
        faults.append(
            NodeFault(
                node=node,
                symptom=symptom,
                onset=onset,
                end=back,
                cause=f"maintenance of {path}",
                is_real=False,
            )
        )
    return changes, faults


def _poisson(mean: float, chance: Random) -> int:
    """Return a Poisson number: by the gaps of a process."""
    count, at = 0, chance.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + chance.expovariate(1.0)
    return count
