"""The oracle: the probability of each cause of some votes, if rates, delays and shares are known. Pure.

It is the yardstick of the evaluation and no part of the product: it has the parameters that the simulation
drew, which no aggregator knows. What the oracle does not decide, no rule can be expected to decide.

Without a cause, the votes of a check are a Poisson process on each node, with a common Gamma factor on the
rates of the nodes of a cluster. A cause adds at most one vote to a node: to a share of its nodes, with a
delay after its start. `oracle_likelihood.py` has the likelihoods, `oracle_world.py` applies them to a
drawn world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, inf, log

from msgspec import Struct

from bench.evaluation.log_space import log_sum
from bench.evaluation.oracle_likelihood import Evidence
from bench.evaluation.oracle_model import Explanation, Observed, UsualVotes
from bench.evaluation.oracle_votes import CheckVotes

# A cause with at least this probability is decided.
DECIDED = 0.99

# A cause with an estimated weight this far below the largest, as a logarithm, needs no exact one.
_NEGLIGIBLE = 14.0

# The causes of an episode, each with its group and its nodes; empty for no common cause.
Causes = frozenset[tuple[str, frozenset[int]]]
NO_CAUSE: Causes = frozenset()

# One or more further causes that do not show yet.
UNSEEN = ("unseen", frozenset[int]())


class Posterior(Struct, frozen=True):
    """The probability of the causes. hidden: of those that do not show yet on any node. names: of the causes,
    for people.
    """

    probabilities: Mapping[Causes, float]
    hidden: float
    names: Mapping[Causes, str]

    def of(self, causes: Causes) -> float:
        """Return the probability that these are the causes. `NO_CAUSE` includes causes without a vote yet."""
        return self.probabilities.get(causes, 0.0) + (0.0 if causes else self.hidden)

    def decides(self, causes: Causes) -> bool:
        """Return whether the votes decide that these are the causes."""
        return self.of(causes) >= DECIDED

    @property
    def likeliest(self) -> Causes:
        """Return the causes with the largest probability."""
        return max(self.probabilities, key=self.of)


def posterior(
    observed: Observed, usual: Mapping[str, UsualVotes], explanations: Iterable[Explanation], no_cause: float
) -> Posterior:
    """Return the probability of each cause. usual: by check. no_cause: prior probability of none."""
    checks: dict[str, CheckVotes] = {}
    evidence = []
    for explanation in explanations:
        check = explanation.check
        if check not in checks:
            checks[check] = CheckVotes(observed, check, usual[check])
        evidence.append(Evidence(checks[check], explanation))
    weights = [(kind.explanation, weight) for kind in evidence for weight in kind.weights()]
    none = log(no_cause) if no_cause else -inf
    least = max([none, *(weight.estimate for _, weight in weights)]) - _NEGLIGIBLE
    logs: dict[Causes, list[float]] = {NO_CAUSE: [none]}
    names = {NO_CAUSE: "no common cause"}
    for explanation, weight in weights:
        causes = frozenset((explanation.group, candidate.members) for candidate in weight.candidates)
        if len(weight.candidates) < explanation.count:
            causes |= {UNSEEN}
        exact = weight.exact() if weight.estimate > least else weight.estimate
        logs.setdefault(causes, []).append(exact)
        names.setdefault(causes, ", ".join(sorted(candidate.name for candidate in weight.candidates)))
    totals = {causes: log_sum(values) for causes, values in logs.items()}
    hidden = log_sum([-inf, *(kind.hidden() for kind in evidence)])
    whole = log_sum([*totals.values(), hidden])
    probabilities = {causes: exp(total - whole) for causes, total in totals.items()}
    return Posterior(probabilities, exp(hidden - whole), names)
