"""Which domains explain what a class of faults shows: the widest that its votes bear out, in the view that
explains most. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers


def significant_domains(
    ballot: FaultVotes, leaves: Iterable[str], members: DomainMembers, now: float
) -> dict[str, Candidate]:
    """Of some lowest domains, those that more than chance hits, each with what it belongs to: the outermost
    domain above it that is hit as a whole, or itself.
    """
    found: dict[str, Candidate] = {}
    above_all: dict[str, Candidate | None] = {}
    for leaf in leaves:
        hit = ballot.significant_voters(leaf, now, ballot.vote_class.share)
        if hit is None:
            continue
        best = Candidate(ballot.vote_class.name, leaf, *hit, members.size(leaf))
        above = members.parent(leaf)
        while above:
            if above not in above_all:
                above_all[above] = _parent(ballot, above, members, now)
            wider = above_all[above]
            if wider is None:
                break
            best, above = wider, members.parent(above)
        found[leaf] = best
    return found


def _parent(ballot: FaultVotes, domain: str, members: DomainMembers, now: float) -> Candidate | None:
    """A domain that is hit as a whole; None where it is not."""
    where = ballot.vote_rules[members.topology_of(domain)]
    hit = ballot.significant_voters(domain, now, where.share)
    if hit is None or not ballot.is_spread(domain, where, hit[1]):
        return None
    return Candidate(ballot.vote_class.name, domain, *hit, members.size(domain))


def choose_candidates(candidates: Iterable[Candidate], explained: Set[str], least: int) -> list[Candidate]:
    """Those of one class that are needed to explain what is seen: of those of which nearly the largest part
    shows it, the one with most voters first. explained: nodes of which it is known why; least: nodes that
    each has to explain anew.
    """
    left = {one.domain: one for one in candidates}
    known = set(explained)
    picked = []
    while left:
        most = max(one.share for one in left.values())
        close = [one for one in left.values() if one.share >= _CLOSE * most]
        one = min(close, key=lambda one: (-len(one.voters), -one.share, one.domain))
        del left[one.domain]
        if len(one.voters.keys() - known) >= max(least, -(-len(one.voters) // 2)):
            picked.append(one)
            known |= one.voters.keys()
    return picked


# A domain of which so much less than of another shows it may still be what explains both.
_CLOSE = 0.7
