"""Planted firings of a check: false alarms on healthy nodes, and few nodes that break together. Pure."""

from __future__ import annotations

from random import Random

from bench.evaluation.fleets import log_uniform
from bench.evaluation.plant_times import end_of_faults, receipt_times, start_of_cause
from bench.evaluation.symptoms import FALSE
from bench.evaluation.world import Background, Cause, NodeFault, Plant, VersionChange

_MINUTE, _HOUR = 60.0, 3600.0

# Checks with false alarms: of each way to vote.
FALSE_CHECKS = (
    "port-down",
    "nvlink-down",
    "nic-firmware-dead",
    "driver-library-mismatch",
    "gpu-thermal-slowdown",
    "gpu-reset-required",
)

# The one that compares two version strings: it has false alarms as soon as its node has the catalogue.
_OF_FACTS = "driver-library-mismatch"


def plant_false_alarms(background: Background, chance: Random) -> Plant | None:
    """A check fires on healthy nodes: on 1, 10 or 100% of them; see `_firings`."""
    start, size = start_of_cause(background, chance), background.fleet.size
    check, share = chance.choice(FALSE_CHECKS), chance.choice((0.01, 0.1, 1.0))
    count, lasts = max(1, round(share * size)), _spread(chance)
    faults, versions = _firings(background, check, count, start, lasts, chance, is_real=False)
    cause = Cause(
        kind="check", name=check, symptom=f"{FALSE}{check}", members=tuple(range(size)),
        start=start, end=end_of_faults(faults), share=share, spread=lasts + 10.0,
    )  # fmt: skip
    return Plant(kind="false alarms", causes=(cause,), faults=faults, versions=versions, start=start)


# Nodes that break together without a domain in common: the fewest and the most. Assumed.
FEW_NODES = 2, 4


def plant_few_nodes(background: Background, chance: Random) -> Plant | None:
    """Few nodes break together: by a job or by work on them, or a new catalogue finds older faults. Their
    reports are those of false alarms.
    """
    start, check = start_of_cause(background, chance), chance.choice(FALSE_CHECKS)
    count, lasts = chance.randint(*FEW_NODES), _spread(chance)
    faults, versions = _firings(background, check, count, start, lasts, chance, is_real=True)
    return Plant(kind="few nodes", faults=faults, versions=versions, start=start)


def _spread(chance: Random) -> float:
    """Return the seconds within which a check begins to fire: at once, or over up to two hours."""
    return chance.choice((0.0, log_uniform(10 * _MINUTE, 2 * _HOUR, chance)))


def _firings(
    background: Background,
    check: str,
    count: int,
    start: float,
    lasts: float,
    chance: Random,
    *,
    is_real: bool,
) -> tuple[tuple[NodeFault, ...], tuple[VersionChange, ...]]:
    """Return the firings of a check on so many nodes, in `lasts` seconds, and what the nodes receive: a new
    catalogue half of the times, on all nodes, and always if the check finds facts.
    """
    size = background.fleet.size
    received = receipt_times(range(size), start, lasts, chance)
    faults = tuple(
        NodeFault(
            node=node, symptom=f"{FALSE}{check}", onset=received[node] + chance.uniform(0.0, 10.0),
            end=background.until + _HOUR, cause="" if is_real else check, is_real=is_real,
        )
        for node in chance.sample(range(size), count)
    )  # fmt: skip
    is_new = chance.random() < 0.5 or check == _OF_FACTS
    changes = (VersionChange(at, node, "catalogue/new") for node, at in received.items() if is_new)
    return faults, tuple(changes)
