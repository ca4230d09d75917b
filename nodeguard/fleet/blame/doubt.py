"""Which checks fire where nothing explains it, more than chance has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from nodeguard.fleet.blame.blamed import Candidate
from nodeguard.fleet.blame.chance import surprise
from nodeguard.fleet.blame.watch import Watch
from nodeguard.fleet.views.members import Members
from nodeguard.model.blame import PLACES

# A window, how many nodes it may be, and who it is.
Crowd = tuple[float, int, frozenset[str]]

# The exponent of the bound on chance, one in a thousand, from which on a domain has more than its share.
_RARE = 6.9

# So many domains at once, of as many parents, are more than shared parts that fail together.
_MANY = 3


def doubts(
    watches: Mapping[str, Watch],
    candidates: Iterable[Candidate],
    of: Callable[[str, Candidate], bool],
    explained: Callable[[str], Set[str]],
    members: Members,
    began: float,
    now: float,
) -> dict[str, Crowd]:
    """The checks that are to be doubted, with the nodes that make it so.

    candidates: domains that may be to blame; of: whether one shows what a check tells of. explained: nodes on
    which it is known why a check fires. began: when anybody began to listen.
    """
    candidates = tuple(candidates)
    found = {}
    for check, watch in watches.items():
        its = [one for one in candidates if of(check, one)]
        known = set(explained(check))
        crowd = None
        if _everywhere(its, members):
            crowd = watch.crowd(known, began, now)
        if crowd is None:
            crowd = watch.crowd(known.union(*(members.of(one.domain) for one in its)), began, now)
            if crowd is not None and _in_one(crowd[2], members):
                crowd = None
        if crowd is not None:
            found[check] = crowd
    return found


def _everywhere(candidates: Iterable[Candidate], members: Members) -> bool:
    """Whether domains are hit in too many places at once."""
    parents = {members.parent(one.domain) or one.domain for one in candidates}
    return len(parents) >= _MANY


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
