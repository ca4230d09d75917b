"""Suspected checks: they fire on more nodes than chance and shared causes explain. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from functools import partial
from itertools import chain

from nodeguard.fleet.diagnosis.check_firings import CheckFirings, UnexplainedFirings
from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence
from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.shared_versions import MAX_FLEET_SHARE
from nodeguard.fleet.diagnosis.significance import (
    WRONG_LABEL,
    poisson_limit,
    shared_fault_evidence,
    significance,
)
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


class SuspectedChecks:
    """The suspected checks. since: when each began to be suspected, by check."""

    def __init__(self, votes: VoteIndex, evidence: NodeEvidence) -> None:
        self.since: dict[str, float] = {}
        self._votes = votes
        self._evidence = evidence
        self._unexplained: dict[str, UnexplainedFirings] = {}
        self._explained: dict[str, Set[str]] = {}  # nodes with another cause, by fault class

    def update(
        self, candidates: Collection[Candidate], explained: Callable[[str], Set[str]], now: float
    ) -> None:
        """Update the suspected checks. explained: returns the nodes on which a fault class has a cause."""
        votes, rule = self._votes, self._votes.rule
        self._explained = {name: explained(name) for name in votes.votes_by_class}
        self._unexplained = {}
        for check, firings in votes.firings.items():
            scope = firings.scope
            if scope is None or len(firings.latest) < rule.suppression.min_nodes:
                continue
            unexplained = unexplained_firings(firings, votes, candidates, self.caused(check) | scope, now)
            if unexplained is None or not self.may_be_false(check, unexplained.nodes, now):
                continue
            onsets = {uid: firings.latest[uid] for uid in unexplained.nodes}
            if not votes.were_judged(onsets, rule.grace_period):
                self._unexplained[check] = unexplained
        self.since = {check: self.since.get(check, now) for check in self._unexplained}

    def may_be_false(self, check: str, uids: Collection[str], now: float) -> bool:
        """Return whether a check may be wrong on nodes: on a fact, only if what reads it is new there."""
        return not self._evidence.is_fact(check, uids) or bool(self._votes.versions.received(uids, now))

    def caused(self, check: str) -> set[str]:
        """Return the nodes on which another cause than a false alarm explains a check."""
        firings = self._votes.firings_of(check)
        explained = set[str]().union(*(self._explained[name] for name in firings.classes))
        classes = firings.classes.values()
        if classes and all(votes.ended for votes in classes):
            # Onsets from before the end of a degraded domain of each fault class of the check.
            onsets = firings.latest.items()
            explained.update(uid for uid, at in onsets if all(votes.has_ended(uid, at) for votes in classes))
        return explained

    def take_settled(self, now: float) -> dict[str, UnexplainedFirings]:
        """Return the checks that have been suspected for long enough, which are no longer suspected."""
        grace_period = self._votes.rule.grace_period
        settled = [check for check, since in self.since.items() if now - since >= grace_period]
        for check in settled:
            del self.since[check]
        return {check: self._unexplained[check] for check in settled}


def unexplained_firings(
    firings: CheckFirings,
    votes: VoteIndex,
    candidates: Collection[Candidate],
    explained: Set[str],
    now: float,
) -> UnexplainedFirings | None:
    """Return the firings of a check to suspect: that neither domains nor other causes explain; None for few.

    candidates: domains that may be degraded. explained: nodes on which a cause explains the check.
    """
    members, rule = votes.members, votes.rule
    candidates = [candidate for candidate in candidates if candidate.fault_class in firings.classes]
    topology_of = members.topology_of
    # One version is most of a fleet: its nodes are independent.
    topologies = {
        topology for class_votes in firings.classes.values() for topology in class_votes.location_topologies
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
        return is_explained and not votes.versions.recent(nodes, now)

    affected = set[str]().union(*(members.nodes(candidate.domain) for candidate in candidates))
    if are_everywhere(candidates, members):
        # Domains in so many places have faults of their own if the other nodes are clean. A few votes in each
        # of them may as well be the false alarm.
        is_clear = any(candidate.share >= rule.weak_evidence.share for candidate in candidates)
        has_others = len(affected) <= MAX_FLEET_SHARE * len(members)
        for unexplained in firings.unexplained(explained, lambda *_: True, len(members), votes.began, now):
            is_likely = is_clear and has_others and are_likelier(candidates, unexplained.nodes, members)
            if not have_one_cause(unexplained, [affected if is_likely else set()], explained):
                return unexplained
    share = 0.0 if firings.only_warns else _SHARE_OF_ONE
    are_independent = partial(_are_independent, topologies=topologies, share=share, members=members)
    excluded = affected.union(explained)
    for unexplained in firings.unexplained(excluded, are_independent, len(members), votes.began, now):
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
