"""Candidates: the widest domains that the votes of a fault class confirm, in the topology that explains
most. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers


def significant_domains(
    votes: FaultVotes, leaves: Iterable[str], members: DomainMembers, now: float
) -> dict[str, Candidate]:
    """Return the lowest domains that are affected more than by chance, each with its candidate: the outermost
    parent that is affected as a whole, or the domain itself.
    """
    candidates: dict[str, Candidate] = {}
    parents: dict[str, Candidate | None] = {}
    for leaf in leaves:
        voters = votes.significant_voters(leaf, now, votes.vote_class.share)
        if voters is None:
            continue
        candidate = Candidate(votes.vote_class.name, leaf, *voters, members.size(leaf))
        above = members.parent(leaf)
        while above:
            if above not in parents:
                parents[above] = _parent(votes, above, members, now)
            wider = parents[above]
            if wider is None:
                break
            candidate, above = wider, members.parent(above)
        candidates[leaf] = candidate
    return candidates


def _parent(votes: FaultVotes, domain: str, members: DomainMembers, now: float) -> Candidate | None:
    """Return the candidate of a domain that is affected as a whole; None if it is not."""
    rule = votes.vote_rules[members.topology_of(domain)]
    voters = votes.significant_voters(domain, now, rule.share)
    if voters is None or not votes.is_spread(domain, rule, voters[1]):
        return None
    return Candidate(votes.vote_class.name, domain, *voters, members.size(domain))


def choose_candidates(candidates: Iterable[Candidate], explained: Set[str], least: int) -> list[Candidate]:
    """Return the candidates of one fault class that are needed to explain the votes. Of those with nearly the
    largest share, the one with most voters comes first. explained: uids with an explanation; least: nodes
    that each candidate has to explain in addition.
    """
    left = {candidate.domain: candidate for candidate in candidates}
    covered = set(explained)
    chosen = []
    while left:
        largest = max(candidate.share for candidate in left.values())
        close = [candidate for candidate in left.values() if candidate.share >= _CLOSE * largest]
        best = min(close, key=lambda candidate: (-len(candidate.voters), -candidate.share, candidate.domain))
        del left[best.domain]
        if len(best.voters.keys() - covered) >= max(least, -(-len(best.voters) // 2)):
            chosen.append(best)
            covered |= best.voters.keys()
    return chosen


# A domain with at least this part of the largest share may still be the one that explains both.
_CLOSE = 0.7
