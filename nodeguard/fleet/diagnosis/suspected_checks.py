"""Suspected checks: they fire on more nodes than chance and shared causes explain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from functools import partial
from math import log

from nodeguard.fleet.diagnosis.candidates import recent_version
from nodeguard.fleet.diagnosis.check_firings import PriorRate, UnexplainedFirings
from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, DiagnosisPolicy

# Nodes of one leaf that count as independent: a gang that starts badly affects many of them. Of a check that
# asks for marks, also this share of a large leaf: few of its nodes may be a false alarm.
_OF_ONE = 2
_SHARE_OF_ONE = 1 / 32

# Minimum exponent of the bound on chance, one in a thousand, for a domain with more than its share.
_MIN_SIGNIFICANCE = 6.9

# So many affected domains at once, of different parents, are more than shared hardware that fails; and so are
# domains with more than this share of the fleet, such as both pods of two.
_MANY = 3
_MAX_FLEET_SHARE = 0.8

# Relative error of a significance.
_ROUNDING = 1e-9


def suspected_checks(
    checks: Iterable[str],
    votes: VoteIndex,
    candidates: Iterable[Candidate],
    explained: Callable[[str], Set[str]],
    rule: DiagnosisPolicy,
    now: float,
) -> dict[str, UnexplainedFirings]:
    """Return the checks to suspect, with the nodes on which nothing explains them.

    candidates: domains that may be degraded. explained: returns the nodes on which a cause explains a check.
    """
    candidates, members = tuple(candidates), votes.members
    suspected = {}
    for check in checks:
        firings, classes = votes.firings[check], votes.classes_of(check)
        # One version is most of a fleet: its nodes are independent.
        topologies = {
            topology
            for class_votes in classes.values()
            for topology in class_votes.vote_rules
            if topology in LOCATION_TOPOLOGIES
        }
        own = [candidate for candidate in candidates if candidate.fault_class in classes]
        excluded = set(explained(check))
        before = PriorRate(
            votes.usual_rate(check) * len(members), now if votes.began is None else votes.began
        )
        unexplained = (
            firings.unexplained(excluded, len, before, now) if are_everywhere(own, members) else None
        )
        if unexplained is None:
            excluded = excluded.union(*(members.nodes(candidate.domain) for candidate in own))
            share = 0.0 if votes.only_warns(check) else _SHARE_OF_ONE
            count = partial(_independent_nodes, topologies=topologies, share=share, members=members)
            unexplained = firings.unexplained(excluded, count, before, now)
            if (
                unexplained is not None
                and _in_one(unexplained.nodes, excluded, topologies, rule, members)
                and not recent_version(members, unexplained.nodes, votes.version_changes, now)
            ):
                unexplained = None
        if unexplained is not None:
            suspected[check] = unexplained
    return suspected


def are_everywhere(candidates: Collection[Candidate], members: DomainMembers) -> bool:
    """Return whether domains in too many locations, or of most of the fleet, are affected at once."""
    parents = {members.parent(candidate.domain) or candidate.domain for candidate in candidates}
    if len(parents) >= _MANY:
        return True
    locations = (
        members.nodes(candidate.domain)
        for candidate in candidates
        if members.topology_of(candidate.domain) in LOCATION_TOPOLOGIES
    )
    return len(set[str]().union(*locations)) > _MAX_FLEET_SHARE * len(members)


def _independent_nodes(
    uids: Collection[str], topologies: Set[str], share: float, members: DomainMembers
) -> int:
    """Return how many independent nodes some count as: few of any leaf in which the check votes. share: of
    the nodes of a leaf that count.
    """
    counts: Counter[str] = Counter()
    for uid in uids:
        leaves = (path for path in members.paths(uid) if not members.children(path))
        counts[next((path for path in leaves if members.topology_of(path) in topologies), uid)] += 1
    return sum(min(count, max(_OF_ONE, int(share * members.size(leaf)))) for leaf, count in counts.items())


def _in_one(
    uids: frozenset[str],
    explained: Set[str],
    topologies: Set[str],
    rule: DiagnosisPolicy,
    members: DomainMembers,
) -> bool:
    """Return whether one parent domain has most of the nodes, and more than by chance. explained: nodes that
    do not count. topologies: those that can cause the fault.

    In a domain of half of a fleet, few nodes are never significant. There all of the fewest nodes of a false
    alarm suffice: its next nodes will be elsewhere.
    """
    counts: dict[str, int] = {}
    for uid in uids:
        for path in members.paths(uid):
            counts[path] = counts.get(path, 0) + 1
    others = max(1, len(members) - len(explained))
    for path, count in counts.items():
        if count * 2 > len(uids) and members.topology_of(path) in topologies and members.children(path):
            chance = len(members.nodes(path) - explained) / others
            if chance > _MAX_FLEET_SHARE:
                continue
            least = min(_MIN_SIGNIFICANCE, -rule.suppression.min_nodes * log(chance))
            if significance(count, len(uids), chance) >= least * (1 - _ROUNDING):
                return True
    return False
