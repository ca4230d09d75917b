"""Suspected checks: they fire on more nodes than chance and shared causes explain. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Set
from functools import partial
from itertools import chain

from nodeguard.fleet.diagnosis.check_firings import UnexplainedFirings
from nodeguard.fleet.diagnosis.likelihood import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.shared_versions import MAX_FLEET_SHARE, fired_after_receipt, have_new_version
from nodeguard.fleet.diagnosis.significance import poisson_limit, significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, DiagnosisPolicy

# Nodes of one leaf that count as independent: a gang that starts badly affects many of them. Of a check that
# asks for marks, also this share of a large leaf: few of its nodes may be a false alarm.
_OF_ONE = 2
_SHARE_OF_ONE = 1 / 32

# So many affected domains at once, of different parents, may be more than shared hardware that fails; so may
# domains with more than MAX_FLEET_SHARE of the fleet, such as both pods of two.
_MANY = 3

# Nodes outside of some domains may be chance unless so many of them are rarer than this: one in a thousand.
_STRAY_CHANCE = 1e-3


def unexplained_firings(
    check: str,
    votes: VoteIndex,
    candidates: Collection[Candidate],
    explained: Set[str],
    now: float,
) -> UnexplainedFirings | None:
    """Return the firings of a check to suspect: that neither domains nor other causes explain; None for few.

    candidates: domains that may be degraded. explained: nodes on which a cause explains the check.
    """
    candidates = [candidate for candidate in candidates if candidate.fault_class in votes.classes_of(check)]
    firings, members, rule = votes.firings[check], votes.members, votes.rule
    topology_of = members.topology_of
    prior = votes.usual_rate(check) * len(members)
    # One version is most of a fleet: its nodes are independent.
    topologies = {
        topology
        for class_votes in votes.classes_of(check).values()
        for topology in class_votes.location_topologies
    }

    def placed(uids: Set[str], places: Set[str]) -> Set[str]:
        """Return some nodes, without those that lack a location: they may be in the places with the others,
        unless they are more.
        """
        lost = {uid for uid in uids - places if topologies.isdisjoint(map(topology_of, members.paths(uid)))}
        return uids - lost if len(lost) <= len(uids & places) else uids

    def have_one_cause(
        unexplained: UnexplainedFirings, causes: Iterable[Set[str]], explained: Set[str]
    ) -> bool:
        """Return whether the nodes of one of some causes are all of the unexplained ones: others are chance,
        or misplaced. explained: nodes that are not among the unexplained ones.
        """
        nodes, since = unexplained.nodes, now - unexplained.window
        by_chance = poisson_limit(unexplained.usual, _STRAY_CHANCE)
        recent = nodes.union(uid for uid, at in firings.latest.items() if at > since and uid in explained)
        is_explained = any(
            len(nodes - places) <= by_chance
            or _are_concentrated(placed(recent, places | explained), places | explained, rule, members)
            for places in causes
        )
        return is_explained and not (nodes <= after_receipt or have_new_version(votes, nodes, now))

    after_receipt = fired_after_receipt(votes, firings.latest)
    affected = set[str]().union(*(members.nodes(candidate.domain) for candidate in candidates))
    if are_everywhere(candidates, members):
        # Domains in so many places have faults of their own if the other nodes are clean. A few votes in each
        # of them may as well be the false alarm.
        is_clear = any(candidate.share >= rule.weak_evidence.share for candidate in candidates)
        has_others = len(affected) <= MAX_FLEET_SHARE * len(members)
        for unexplained in firings.unexplained(explained, lambda *_: True, prior, votes.began, now):
            is_likely = is_clear and has_others and are_likelier(candidates, unexplained.nodes, members)
            if not have_one_cause(unexplained, [affected if is_likely else set()], explained):
                return unexplained
    share = 0.0 if votes.only_warns(check) else _SHARE_OF_ONE
    are_independent = partial(_are_independent, topologies=topologies, share=share, members=members)
    excluded = affected.union(explained)
    for unexplained in firings.unexplained(excluded, are_independent, prior, votes.began, now, after_receipt):
        parents = _largest_parents(unexplained.nodes, topologies, excluded, members)
        # Without a parent: all may be misplaced nodes of domains that are excluded.
        if not have_one_cause(unexplained, chain([frozenset[str]()], parents), excluded):
            return unexplained
    return None


def are_likelier(candidates: Iterable[Candidate], uids: Set[str], members: DomainMembers) -> bool:
    """Return whether faults of some domains make the votes likelier than one cause of all nodes that fire: in
    small domains, such a cause affects most nodes of many of them. uids: nodes that fire.
    """
    by_domain = {candidate.domain: candidate for candidate in candidates}.values()
    evidence = sum(shared_fault_evidence(len(own.voters), own.size, WRONG_LABEL) for own in by_domain)
    firing = set(uids).union(*(own.voters for own in by_domain))
    return evidence > shared_fault_evidence(len(firing), len(members), WRONG_LABEL)


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
    return len(set[str]().union(*locations)) > MAX_FLEET_SHARE * len(members)


def _are_independent(
    uids: Iterable[str], least: int, topologies: Set[str], share: float, members: DomainMembers
) -> bool:
    """Return whether some nodes count as at least so many independent ones: few of any leaf in which the
    check votes. share: of the nodes of a leaf that count.
    """
    counts: Counter[str] = Counter()
    independent = 0
    for uid in uids:
        leaves = (path for path in members.paths(uid) if not members.children(path))
        leaf = next((path for path in leaves if members.topology_of(path) in topologies), uid)
        counts[leaf] += 1
        independent += counts[leaf] <= max(_OF_ONE, int(share * members.size(leaf)))
        if independent >= least:
            return True
    return False


def _largest_parents(
    uids: Set[str], topologies: Set[str], excluded: Set[str], members: DomainMembers
) -> Iterator[Set[str]]:
    """Yield, for each level of some topologies, the nodes of the two parent domains with most of some nodes:
    shared hardware that fails in both of them explains these, if it has the time to become significant. Of
    the first one only, if both have nearly all nodes that are not excluded.
    """
    largest = MAX_FLEET_SHARE * (len(members) - len(excluded))
    counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for path, count in Counter(chain.from_iterable(map(members.paths, uids))).items():
        if members.children(path) and members.topology_of(path) in topologies:
            counts[members.topology_of(path), path.count("/")][path] = count
    for level in counts.values():
        group: Set[str] = frozenset()
        for parent, _ in level.most_common(_CAUSES):
            both = group | members.nodes(parent)
            if len(both - excluded) <= largest:
                group = both
        yield group


def _are_concentrated(
    nodes: Set[str], places: Set[str], rule: DiagnosisPolicy, members: DomainMembers
) -> bool:
    """Return whether nearly all of some nodes are in some places, and that is no chance."""
    inside = len(nodes & places)
    if inside < (1.0 - _MISPLACED) * len(nodes):
        return False
    return significance(inside, len(nodes), len(places) / len(members)) >= rule.significance_exponent


# The share of nodes that may have the label of another place: assumed.
_MISPLACED = 0.2

# Domains that fail at the same time: more of them are found when they have become significant.
_CAUSES = 2
