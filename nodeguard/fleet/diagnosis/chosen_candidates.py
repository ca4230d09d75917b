"""Chosen candidates: the domains of one topology that explain the votes of a fault class best. Pure.

A rack without power and a leaf switch that fails show in the same nodes. The domains of each topology are
compared by the likelihood of the votes: a domain that fails shows in an unknown share of its nodes. Another
node with a vote has a wrong label, or a fault of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from math import log

from nodeguard.fleet.diagnosis.likelihood import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.votes import FaultVotes

# The first topology of a fault class, its likeliest cause, is named unless another is so many times likelier.
_CLEARLY_LIKELIER = 5.0


def choose_candidates(
    candidates: Iterable[Candidate],
    votes: FaultVotes,
    explained: Callable[[Candidate], Set[str]],
    least: Callable[[int], int],
    now: float,
) -> list[Candidate]:
    """Return the candidates of one fault class that are needed to explain the votes: those of the topology
    that explains them best, then others with enough further votes.

    explained: returns the uids with an explanation beside a candidate. least: returns how many nodes a
    candidate of a size has to explain in addition.
    """
    covered: set[str] = set()
    chosen: list[Candidate] = []
    left = list(candidates)

    def unexplained(candidate: Candidate) -> int:
        return len(candidate.voters.keys() - covered - explained(candidate))

    while left:
        best = _likeliest(_connected(left), votes, unexplained, now)
        for candidate in best:
            if unexplained(candidate) >= max(least(candidate.size), -(-len(candidate.voters) // 2)):
                chosen.append(candidate)
                covered |= candidate.voters.keys()
        left = [candidate for candidate in left if candidate not in best]
    return chosen


def _connected(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidate and all that share voters with it, or with one of these."""
    group, rest = [candidates[0]], list(candidates[1:])
    for member in group:
        group += [other for other in rest if not member.voters.keys().isdisjoint(other.voters)]
        rest = [other for other in rest if other not in group]
    return group


def _likeliest(
    group: Iterable[Candidate], votes: FaultVotes, unexplained: Callable[[Candidate], int], now: float
) -> list[Candidate]:
    """Return the candidates of the topology that explains best the votes that nothing else explains."""
    by_topology: dict[str, list[Candidate]] = defaultdict(list)
    totals: dict[str, float] = defaultdict(float)
    for candidate in group:
        topology = candidate.domain.partition("/")[0]
        by_topology[topology].append(candidate)
        chance, counted = max(WRONG_LABEL, votes.chance(candidate.window, now)), unexplained(candidate)
        evidence = shared_fault_evidence(len(candidate.voters), candidate.size, chance, counted)
        totals[topology] += max(0.0, evidence)
    enough = max(totals.values()) - log(_CLEARLY_LIKELIER)
    return next(
        by_topology[topology]
        for topology in votes.vote_rules
        if topology in by_topology and totals[topology] >= enough
    )
