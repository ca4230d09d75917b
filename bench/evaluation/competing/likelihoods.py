"""Likelihoods of the explanations of votes. Pure. Natural logarithms, relative to independent faults at the
usual rate.

Votes that are independent, at the usual rate of their class, have the value 0.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, lgamma, log, log1p

from nodeguard.model.diagnosis import DiagnosisPolicy


def shared_cause(voters: int, members: int, usual: float, shown: float, prior: float) -> float:
    """Return the value of one cause that all members share, with an unknown share of them that shows it.

    usual: votes of one node in the time within which such a fault shows, at the usual rate. shown: part of
    this time that has passed since the first vote, up to 1: a node may still show it later. prior:
    probability of such a fault within this time.
    """
    return log(prior) - voters * log(usual) + _any_share(voters, members - voters, round(shown, 2))


# Value by which an explanation has to be better than all others: odds of 20 to 1.
SURE = 3.0

# How much the rate of single faults differs from domain to domain: the shape of a gamma distribution.
# Assumed: gangs start on adjacent nodes, and some aisles are warmer.
SPREAD = 0.5


# Seconds within which a domain has a shared fault with the probability `significance`: with the default, five
# in ten thousand days. Assumed, as of 0.16 dead or slow leaves a day in 7,500 nodes.
_PRIOR_SECONDS = 172.8


def prior(rule: DiagnosisPolicy, seconds: float) -> float:
    """Return the probability of a shared fault of a domain within some seconds, before any evidence."""
    return rule.significance / _PRIOR_SECONDS * seconds


# The probability that another domain fails at the time of one. Assumed.
_ANOTHER = 0.001


def another(rule: DiagnosisPolicy, seconds: float) -> float:
    """Return the value that a further domain gains since another one fails at the same time."""
    return max(0.0, log(_ANOTHER / prior(rule, seconds)))


@lru_cache(maxsize=65_536)
def _any_share(voters: int, others: int, shown: float) -> float:
    """Return the logarithm of the integral of q^voters (1 - q shown)^others over all shares q."""
    if shown >= 1.0 or shown * (voters + others + 2) > voters + 1:
        beta = lgamma(voters + 1) + lgamma(others + 1) - lgamma(voters + others + 2)
        return beta - (voters + 1) * log(shown)
    # More nodes show it than the time passed explains: a share near one is the likeliest.
    return others * log1p(-shown) - log(max(0.0, voters - others * shown / (1.0 - shown)) + 1.0)


@lru_cache(maxsize=65_536)
def clump(voters: int, expected: float) -> float:
    """Return the value of independent faults of which the rate differs from domain to domain. expected: votes
    at the usual rate.
    """
    value = lgamma(SPREAD + voters) - lgamma(SPREAD) - voters * log(SPREAD)
    return max(0.0, value - (SPREAD + voters) * log1p(expected / SPREAD) + expected)


def everywhere(voters: int, members: int, usual: float, shown: float, prior: float) -> float:
    """Return the value of a cause on nodes that share nothing, such as a false alarm. The shares of nodes
    from one to all are alike in logarithm. Arguments: as of `shared_cause`.
    """
    if voters <= usual * members:
        return -inf
    share = _any_share(voters - 1, members - voters, round(shown, 2)) - log(max(1.0, log(members)))
    return log(prior) - voters * log(usual) + share + usual * members


@lru_cache(maxsize=4096)
def fewest_everywhere(least: int, members: int, usual: float, prior: float, value: float) -> int:
    """Return the minimum number of nodes for such a cause to have a value. least: of nodes, at least."""
    return next(
        (many for many in range(least, members) if everywhere(many, members, usual, 1.0, prior) >= value),
        members,
    )
