"""The times of planted causes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from bench.evaluation.world import Background, NodeFault

_SPREAD = 600.0


def start_of_cause(background: Background, chance: Random) -> float:
    """Return when a cause begins, in seconds: within ten minutes after the usual operation."""
    return background.before + chance.uniform(0.0, _SPREAD)


def end_of_faults(faults: Iterable[NodeFault]) -> float:
    """Return the end of the last of some faults."""
    return max(fault.end for fault in faults)


def receipt_times(nodes: Sequence[int], start: float, lasts: float, chance: Random) -> dict[int, float]:
    """Return when each node receives what is rolled out, in random order."""
    order = chance.sample(nodes, len(nodes))
    step = lasts / max(1, len(order) - 1)
    return {node: start + index * step for index, node in enumerate(order)}
