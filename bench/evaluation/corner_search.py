"""The search for bad corners: parts of the drawn worlds in which the diagnosis fails most. Pure.

It is a cross-entropy search over thirds of the drawn parameters. Each round evaluates worlds that are likely
to be as the worst ones so far. The corner that it finds is measured on worlds that it has not seen: the
worst of many random figures is too low by chance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf, log
from random import Random

from msgspec import Struct

Parameters = Mapping[str, float]

# Parts of a parameter with equally many worlds; share of the trials that count as the worst; and how fast the
# weights follow these.
_PARTS, _WORST, _SPEED = 3, 0.25, 0.6

# Worlds that are drawn for one that is evaluated.
_DRAWN = 12

# Conditions of a corner, and least weight of each: without any, the weight is a third.
_CONDITIONS, _LEAST_WEIGHT = 2, 0.5


class Trial(Struct, frozen=True):
    """A world with the outcome of a rule. failed: whether a cause was not named, or a domain without a fault
    was. cost: in node-hours. is_decided: whether the votes decide all causes; else the trial does not count.
    """

    seed: int
    parameters: dict[str, float]
    failed: bool
    cost: float
    is_decided: bool


class Condition(Struct, frozen=True):
    """A range of a drawn parameter: from `low` to below `high`."""

    name: str
    low: float
    high: float

    def holds(self, parameters: Parameters) -> bool:
        """Return whether a world is in the range."""
        return self.name in parameters and self.low <= parameters[self.name] < self.high


class Corner(Struct, frozen=True):
    """A corner. inside: trials that meet the conditions and that the search did not use; outside: the trials
    of the first round, which are random. found: the trials of the search.
    """

    conditions: tuple[Condition, ...]
    inside: tuple[Trial, ...]
    outside: tuple[Trial, ...]
    found: tuple[Trial, ...]


class Draw(Struct, frozen=True):
    """A drawn world that may be evaluated."""

    seed: int
    parameters: dict[str, float]


class CornerSearch(Struct, frozen=True):
    """The size of a search. rounds: of it; population: trials of a round; confirmations: trials with which
    its corner is measured. by_cost: whether the worst are those with the largest cost, not those that fail.
    """

    rounds: int
    population: int
    confirmations: int
    by_cost: bool = False

    def run(
        self, draws: Iterator[Draw], evaluate: Callable[[Sequence[Draw]], Iterable[Trial]], chance: Random
    ) -> Corner:
        """Return the worst corner. draws: worlds at random, as many as are taken."""
        sample = list(islice(draws, self.population * _DRAWN))
        weights = PartWeights([draw.parameters for draw in sample])
        first = chosen = sample[: self.population]
        trials: list[Trial] = []
        for number in range(self.rounds):
            if number:
                sample = list(islice(draws, self.population * _DRAWN))
                chosen = weights.choose(sample, self.population, chance)
            trials += evaluate(chosen)
            weights.update(self._worst(trials))
        conditions = weights.conditions()
        tries = islice(draws, self.confirmations * _DRAWN * _PARTS)
        matching = (draw for draw in tries if all(item.holds(draw.parameters) for item in conditions))
        inside = tuple(evaluate(list(islice(matching, self.confirmations))))
        return Corner(conditions, inside, tuple(trials[: len(first)]), tuple(trials))

    def _worst(self, trials: Sequence[Trial]) -> list[Parameters]:
        decided = [trial for trial in trials if trial.is_decided]
        decided.sort(key=lambda trial: (not self.by_cost and trial.failed, trial.cost), reverse=True)
        return [trial.parameters for trial in decided[: max(1, round(_WORST * len(decided)))]]


class PartWeights:
    """The weight of each third of each parameter: of how many of the worst worlds are in it."""

    def __init__(self, sample: Sequence[Parameters]) -> None:
        """sample: parameters of random worlds, which have equally many in each third."""
        self._bounds: dict[str, list[float]] = {}
        for name in sorted({name for parameters in sample for name in parameters}):
            values = sorted(parameters[name] for parameters in sample if name in parameters)
            bounds = [values[len(values) * part // _PARTS] for part in range(1, _PARTS)]
            if values[0] < bounds[0] < bounds[-1]:
                self._bounds[name] = bounds
        self._weights = {name: [1.0 / _PARTS] * _PARTS for name in self._bounds}

    def update(self, worst: Sequence[Parameters]) -> None:
        """Move the weights towards the worst worlds."""
        for name, weights in self._weights.items():
            counts = [1.0] * _PARTS
            for parameters in worst:
                if name in parameters:
                    counts[self._part(name, parameters[name])] += 1.0
            total = sum(counts)
            self._weights[name] = [
                (1.0 - _SPEED) * weight + _SPEED * count / total
                for weight, count in zip(weights, counts, strict=True)
            ]

    def choose(self, draws: Sequence[Draw], count: int, chance: Random) -> list[Draw]:
        """Return some draws at random, with probabilities by their weights."""
        # The largest of u ** (1 / weight) are a sample without replacement: as logarithms of both.
        keys = {draw.seed: log(-log(1.0 - chance.random())) - self._log_weight(draw) for draw in draws}
        return sorted(draws, key=lambda draw: keys[draw.seed])[:count]

    def conditions(self) -> tuple[Condition, ...]:
        """Return the thirds with the largest weights, one of a parameter."""
        largest = sorted(((max(weights), name) for name, weights in self._weights.items()), reverse=True)
        conditions = []
        for weight, name in largest[:_CONDITIONS]:
            if weight >= _LEAST_WEIGHT:
                bounds = [-inf, *self._bounds[name], inf]
                part = self._weights[name].index(weight)
                conditions.append(Condition(name, bounds[part], bounds[part + 1]))
        return tuple(conditions)

    def _part(self, name: str, value: float) -> int:
        return bisect_right(self._bounds[name], value)

    def _log_weight(self, draw: Draw) -> float:
        return sum(
            log(_PARTS * weights[self._part(name, draw.parameters[name])])
            for name, weights in self._weights.items()
            if name in draw.parameters
        )
