"""The search for bad corners: parts of the drawn worlds in which the diagnosis fails most. Pure.

It is a cross-entropy search over thirds of the drawn parameters. Each round evaluates worlds that are likely
to be as the worst ones so far. The corner that it finds is measured on worlds that it has not seen: the
worst of many random figures is too low by chance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from math import inf, log, sqrt
from random import Random
from statistics import fmean, variance

from msgspec import Struct

Parameters = Mapping[str, float]

# Parts of a parameter with equally many worlds; share of the trials that count as the worst; and how fast the
# weights follow these.
_PARTS, _WORST, _SPEED = 3, 0.25, 0.6

# Worlds that are drawn for one that is evaluated.
_DRAWN = 12

# Conditions of a corner; least contrast of each, in standard errors, and least number of trials on each side:
# among 80 thirds, chance reaches two and a half.
_CONDITIONS, _LEAST_CONTRAST, _FEWEST = 2, 2.5, 8


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
        conditions = self._conditions(weights, trials)
        tries = islice(draws, self.confirmations * _DRAWN * _PARTS)
        matching = (draw for draw in tries if all(item.holds(draw.parameters) for item in conditions))
        inside = tuple(evaluate(list(islice(matching, self.confirmations))))
        return Corner(conditions, inside, tuple(trials[: len(first)]), tuple(trials))

    def _worst(self, trials: Sequence[Trial]) -> list[Parameters]:
        """Return the parameters of the worst trials: a quarter at most, and only failures by default."""
        decided = [trial for trial in trials if trial.is_decided]
        worst = [trial for trial in decided if self.by_cost or trial.failed]
        worst.sort(key=lambda trial: -trial.cost)
        return [trial.parameters for trial in worst[: max(1, round(_WORST * len(decided)))]]

    def _conditions(self, weights: PartWeights, trials: Sequence[Trial]) -> tuple[Condition, ...]:
        """Return the thirds, one of a parameter, in which trials are worst compared with all others."""
        decided = [trial for trial in trials if trial.is_decided]
        largest: dict[str, tuple[float, Condition]] = {}
        for condition in weights.parts():
            values: tuple[list[float], list[float]] = [], []
            for trial in decided:
                value = trial.cost if self.by_cost else float(trial.failed)
                values[condition.holds(trial.parameters)].append(value)
            contrast = _contrast(*values)
            if contrast > max(_LEAST_CONTRAST, largest.get(condition.name, (0.0,))[0]):
                largest[condition.name] = contrast, condition
        ordered = sorted(largest.values(), key=lambda item: -item[0])
        return tuple(condition for _, condition in ordered[:_CONDITIONS])


def _contrast(others: Sequence[float], inside: Sequence[float]) -> float:
    """Return by how many standard errors the mean inside exceeds that of the others; 0 for few."""
    if min(len(others), len(inside)) < _FEWEST:
        return 0.0
    error = sqrt(variance(others) / len(others) + variance(inside) / len(inside))
    return (fmean(inside) - fmean(others)) / error if error else 0.0


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

    def parts(self) -> Iterator[Condition]:
        """Yield the thirds of each parameter."""
        for name, inner in self._bounds.items():
            for low, high in pairwise((-inf, *inner, inf)):
                yield Condition(name, low, high)

    def _part(self, name: str, value: float) -> int:
        return bisect_right(self._bounds[name], value)

    def _log_weight(self, draw: Draw) -> float:
        return sum(
            log(_PARTS * weights[self._part(name, draw.parameters[name])])
            for name, weights in self._weights.items()
            if name in draw.parameters
        )
