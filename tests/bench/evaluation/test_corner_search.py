from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from math import inf
from random import Random

from msgspec.structs import replace

from bench.evaluation.corner_search import Condition, CornerSearch, Draw, PartWeights, Trial

SEARCH = CornerSearch(rounds=4, population=30, confirmations=20)


def draws() -> Iterator[Draw]:
    for seed in count():
        chance = Random(seed)
        names = ("heat", "delay", "noise", "leaves")
        yield Draw(seed, {"constant": 1.0} | {name: chance.uniform(0.0, 10.0) for name in names})


def trial(draw: Draw) -> Trial:
    """The rule fails in hot fleets with a long delay; cold ones are not decided, and cost most."""
    heat, delay = draw.parameters["heat"], draw.parameters["delay"]
    failed = heat > 6.0 and delay > 5.0
    return Trial(draw.seed, draw.parameters, failed, 5.0 if failed else heat, is_decided=heat > 1.0)


def evaluate(chosen: Sequence[Draw]) -> Iterator[Trial]:
    return map(trial, chosen)


def test_the_corner_is_found() -> None:
    corner = SEARCH.run(draws(), evaluate, Random(1))
    assert {condition.name for condition in corner.conditions} == {"heat", "delay"}
    assert all(condition.high == inf for condition in corner.conditions)
    inside = [trial.failed for trial in corner.inside]
    outside = [trial.failed for trial in corner.outside]
    assert len(inside) == SEARCH.confirmations
    assert sum(inside) / len(inside) > 2 * sum(outside) / len(outside)


def test_the_corner_is_measured_on_other_worlds() -> None:
    corner = SEARCH.run(draws(), evaluate, Random(1))
    assert {trial.seed for trial in corner.inside}.isdisjoint(trial.seed for trial in corner.found)
    assert len(corner.found) == SEARCH.rounds * SEARCH.population


def test_the_search_is_repeatable() -> None:
    assert SEARCH.run(draws(), evaluate, Random(1)) == SEARCH.run(draws(), evaluate, Random(1))


def test_by_cost() -> None:
    corner = replace(SEARCH, by_cost=True).run(draws(), evaluate, Random(1))
    assert corner.conditions[0].name == "heat"
    assert corner.conditions[0].high == inf


def test_worlds_that_are_not_decided_do_not_count() -> None:
    def undecided(chosen: Sequence[Draw]) -> Iterator[Trial]:
        return (replace(item, is_decided=False) for item in map(trial, chosen))

    corner = SEARCH.run(draws(), undecided, Random(1))
    assert corner.conditions == ()


def test_without_a_failure_there_is_no_corner() -> None:
    def right(chosen: Sequence[Draw]) -> Iterator[Trial]:
        return (replace(item, failed=False) for item in map(trial, chosen))

    assert SEARCH.run(draws(), right, Random(1)).conditions == ()


def test_a_parameter_without_range_has_no_parts() -> None:
    weights = PartWeights([{"constant": 1.0, "heat": float(number)} for number in range(9)])
    low, middle, high = weights.parts()
    assert (low, high) == (Condition("heat", -inf, 3.0), Condition("heat", 6.0, inf))
    assert middle.holds({"heat": 3.0})
    assert not middle.holds({"heat": 6.0})
    assert not middle.holds({})
