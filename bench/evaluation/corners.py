"""Drawn parameters of worlds, and the corner of them in which the diagnosis is worst. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import combinations
from operator import itemgetter

from msgspec import Struct

from bench.evaluation.figures import Share, share
from bench.evaluation.results import EpisodeResult
from bench.evaluation.world import Background, Plant


def drawn_parameters(background: Background, plant: Plant) -> dict[str, float]:
    """Return what was drawn for a world, by name."""
    fleet, delay = background.fleet, background.delay
    leaves, racks = fleet.domains_at("fabric", 2), fleet.domains_at("rack", 2)
    right = sum(set(members) == set(fleet.labelled.get(path, ())) for path, members in fleet.true.items())
    rates = {f"{symptom} a 1,000 node-days": rate.daily * 1000 for symptom, rate in background.rates.items()}
    parameters = {
        "nodes": fleet.size,
        "nodes of a leaf": fleet.size / max(1, len(leaves)),
        "nodes of a rack": fleet.size / max(1, len(racks)),
        "pods": len(fleet.domains_at("fabric", 1)),
        "share of domains with right labels": right / len(fleet.true),
        "share of nodes without agent": len(fleet.muted) / fleet.size,
        "hours before": background.before / 3600.0,
        "report delay, s": delay.median,
        "lost reports": delay.lost,
        "gang starts a day": len(background.starts) / background.until * 86_400.0,
        "evenness of flaps": background.rates["port-flap"].shape,
        "evenness of throttles": background.rates["throttled"].shape,
        "restart of the aggregator": float(
            plant.aggregator_restart is not None or background.aggregator_restart is not None
        ),
        **rates,
    }
    if plant.causes:
        cause = plant.causes[0]
        parameters |= {
            "share that shows it": cause.share,
            "spread, s": cause.spread,
            "members": len(cause.members),
        }
    return {name: round(value, 4) for name, value in parameters.items()}


class Corner(Struct, frozen=True):
    """Worlds with some drawn parameters in some ranges. conditions: as text; success: share of the episodes
    in which each cause was named and nothing else.
    """

    conditions: tuple[str, ...]
    success: Share


# Episodes of a corner, at least; ranges of a parameter, with the same number of episodes.
_FEWEST, _RANGES = 30, 3


def worst_corners(results: Sequence[EpisodeResult], count: int) -> list[Corner]:
    """Return the corners with the lowest success: of two parameters, or of a kind and a parameter. They were
    found by a search, so their shares are too low by chance; other seeds show by how much.
    """
    successes = sum(1 << index for index, result in enumerate(results) if is_success(result))
    ranges = [*_kinds(results), *_parameter_ranges(results)]
    corners: list[tuple[float, Corner]] = []
    for (name, condition, members), (other_name, other, others) in combinations(ranges, 2):
        both = members & others
        if name != other_name and both.bit_count() >= _FEWEST:
            success = share((both & successes).bit_count(), both.bit_count())
            corners.append((success.high, Corner((condition, other), success)))
    return [corner for _, corner in nsmallest(count, corners, key=itemgetter(0))]


def is_success(result: EpisodeResult) -> bool:
    """Return whether each cause was named, and no domain without a fault."""
    return None not in result.score.named and not result.score.wrong


def _kinds(results: Sequence[EpisodeResult]) -> Iterator[tuple[str, str, int]]:
    """Yield name, condition and episodes, as bits, of each kind."""
    for kind in sorted({result.kind for result in results}):
        yield "kind", kind, sum(1 << index for index, result in enumerate(results) if result.kind == kind)


def _parameter_ranges(results: Sequence[EpisodeResult]) -> Iterator[tuple[str, str, int]]:
    """Yield name, condition and episodes, as bits, of each range of each parameter."""
    for name in sorted({name for result in results for name in result.parameters}):
        values = sorted(
            (result.parameters[name], index)
            for index, result in enumerate(results)
            if name in result.parameters
        )
        size = len(values) // _RANGES
        if not size or values[0][0] == values[-1][0]:
            continue
        for number in range(_RANGES):
            part = values[number * size :] if number == _RANGES - 1 else values[number * size :][:size]
            condition = f"{name} {part[0][0]:g} to {part[-1][0]:g}"
            yield name, condition, sum(1 << index for _, index in part)
