"""Which checks fire where nothing explains it, more than chance has it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from functools import partial

from nodeguard.fleet.blame.blamed import Candidate
from nodeguard.fleet.blame.chance import surprise
from nodeguard.fleet.blame.voting import Voting
from nodeguard.fleet.blame.watch import Before, Crowd
from nodeguard.fleet.views.members import Members
from nodeguard.model.blame import PLACES

# Nodes of one leaf that count as if each were for itself: a gang that starts badly shows on many of them.
_OF_ONE = 2

# The exponent of the bound on chance, one in a thousand, from which on a domain has more than its share.
_RARE = 6.9

# So many domains at once, of as many parents, are more than shared parts that fail together.
_MANY = 3


def doubts(
    checks: Iterable[str],
    voting: Voting,
    candidates: Iterable[Candidate],
    explained: Callable[[str], Set[str]],
    now: float,
) -> dict[str, Crowd]:
    """Of some checks, those that are to be doubted, with the nodes that make it so.

    candidates: domains that may be to blame. explained: nodes on which it is known why a check fires.
    """
    candidates, members = tuple(candidates), voting.members
    found = {}
    for check in checks:
        watch, kinds = voting.watches[check], voting.cast(check)
        views = {view for ballot in kinds.values() for view in ballot.where}
        usual = max((ballot.kind.rate * len(members) for ballot in kinds.values()), default=0.0)
        its = [one for one in candidates if one.kind in kinds]
        known = set(explained(check))
        before = Before(usual, now if voting.began is None else voting.began)
        crowd = watch.crowd(known, len, before, now) if _everywhere(its, members) else None
        if crowd is None:
            known = known.union(*(members.of(one.domain) for one in its))
            crowd = watch.crowd(known, partial(_apart, views=views, members=members), before, now)
            if crowd is not None and _in_one(crowd.who, members):
                crowd = None
        if crowd is not None:
            found[check] = crowd
    return found


def _everywhere(candidates: Iterable[Candidate], members: Members) -> bool:
    """Whether domains are hit in too many places at once."""
    parents = {members.parent(one.domain) or one.domain for one in candidates}
    return len(parents) >= _MANY


def _apart(who: Collection[str], views: Set[str], members: Members) -> int:
    """For how many nodes some count: few of any one leaf of the views in which a check votes."""
    found: Counter[str] = Counter()
    for uid in who:
        leaves = (path for path in members.paths(uid) if not members.children(path))
        found[next((path for path in leaves if members.view_of(path) in views), uid)] += 1
    return sum(min(many, _OF_ONE) for many in found.values())


def _in_one(who: frozenset[str], members: Members) -> bool:
    """Whether one domain, of those that consist of others, has most of them, and more than chance gave it."""
    seen: dict[str, int] = {}
    for uid in who:
        for path in members.paths(uid):
            seen[path] = seen.get(path, 0) + 1
    return any(
        many * 2 > len(who)
        and members.view_of(path) in PLACES
        and members.children(path)
        and surprise(many, len(who), members.size(path) / len(members)) >= _RARE
        for path, many in seen.items()
    )
