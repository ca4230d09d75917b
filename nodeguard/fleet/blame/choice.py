"""Which domains explain what a class of faults shows: the widest that its votes bear out, in the view that
explains most. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from nodeguard.fleet.blame.ballot import Ballot
from nodeguard.fleet.blame.blamed import Candidate
from nodeguard.fleet.views.members import Members


def hits(ballot: Ballot, leaves: Iterable[str], members: Members, now: float) -> dict[str, Candidate]:
    """Of some lowest domains, those that more than chance hits, each with what it belongs to: the outermost
    domain above it that is hit as a whole, or itself.
    """
    found: dict[str, Candidate] = {}
    above_all: dict[str, Candidate | None] = {}
    for leaf in leaves:
        hit = ballot.hit(leaf, now, ballot.kind.share)
        if hit is None:
            continue
        best = Candidate(ballot.kind.name, leaf, *hit, members.size(leaf))
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


def _parent(ballot: Ballot, domain: str, members: Members, now: float) -> Candidate | None:
    """A domain that is hit as a whole; None where it is not."""
    where = ballot.where[members.view_of(domain)]
    hit = ballot.hit(domain, now, where.share)
    if hit is None or not ballot.spread(domain, where, hit[1]):
        return None
    return Candidate(ballot.kind.name, domain, *hit, members.size(domain))


def chosen(candidates: Iterable[Candidate], explained: Set[str], least: int) -> list[Candidate]:
    """Those of one class that are needed to explain what is seen: the one of which the larger part shows it
    first, then the one with more voters. explained: nodes of which it is known why; least: nodes that each
    has to explain anew.
    """
    left = {one.domain: one for one in candidates}.values()
    known = set(explained)
    picked = []
    for one in sorted(left, key=lambda one: (-_fifth(one.share), -len(one.voters), one.domain)):
        fresh = len(one.voters.keys() - known)
        if fresh >= max(least, -(-len(one.voters) // 2)):
            picked.append(one)
            known |= one.voters.keys()
    return picked


def _fifth(share: float) -> int:
    """A share in fifths; nearly all is all."""
    return 5 if share >= _NEARLY else int(share * 5)


_NEARLY = 0.9
