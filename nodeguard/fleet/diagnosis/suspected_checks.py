"""Suspected checks: they fire on more nodes than chance and shared causes explain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from heapq import nlargest
from itertools import chain, product
from math import ceil, inf, log, log1p

from nodeguard.fleet.diagnosis.check_firings import UnexplainedFirings
from nodeguard.fleet.diagnosis.likelihood import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.shared_versions import MAX_FLEET_SHARE, fired_after_receipt, have_new_version
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, VERSION_TOPOLOGIES

# A check is suspected if one cause of the whole fleet makes the firings so many times likelier than faults of
# domains.
_CLEARLY_LIKELIER = 20.0

# Nodes of a leaf that count as independent, as leaves differ in their usual rates: so many, or so many times
# its part of all nodes. Assumed.
_OF_ONE, _TIMES_ITS_PART = 2, 2.0

# Nodes outside of parents, which show a fault slowly, may be chance: so many times the usual number.
_TIMES_USUAL = 2.0

# So many affected domains at once, of different parents, may be more than shared hardware that fails; so may
# domains with more than MAX_FLEET_SHARE of the nodes with a location, such as both pods of two.
_MANY = 3

# Domains that fail at the same time besides the candidates: more are found when they have become significant.
_CAUSES = 2

# One or two nodes beside candidates with at least this share of votes may be single faults. Assumed.
_CLEAR_SHARE = 0.5

# Nodes that may have the label of another place, as a share of those in domains that fail: assumed.
_MISPLACED = 0.25


def unexplained_firings(
    check: str, votes: VoteIndex, candidates: Collection[Candidate], explained: Set[str], now: float
) -> UnexplainedFirings | None:
    """Return the firings of a check to suspect: that neither domains nor other causes explain; None for few.

    candidates: domains that may be degraded. explained: nodes on which a cause explains the check.
    """
    classes, firings, members = votes.classes_of(check), votes.firings[check], votes.members
    candidates = [candidate for candidate in candidates if candidate.fault_class in classes]
    affected = set[str]().union(*(members.nodes(candidate.domain) for candidate in candidates))
    is_everywhere = are_everywhere(candidates, members)
    versions = (item for item in candidates if members.topology_of(item.domain) in VERSION_TOPOLOGIES)
    of_versions = () if is_everywhere else (members.nodes(version.domain) for version in versions)
    excluded = set[str]().union(explained, *of_versions)
    # Few votes in each of many domains may as well be the false alarm.
    is_weak = all(candidate.share < votes.rule.weak_evidence.share for candidate in candidates)
    likely = [] if is_everywhere and is_weak else candidates
    clear = (candidate for candidate in candidates if candidate.share >= _CLEAR_SHARE)
    in_clear = set[str]().union(*(members.nodes(candidate.domain) for candidate in clear))
    voters = set[str]().union(*(candidate.voters for candidate in likely)) - excluded
    topologies = {topology for item in classes.values() for topology in item.location_topologies}
    after_receipt = fired_after_receipt(votes, firings.latest) - affected
    explained_onsets = [firings.latest[uid] for uid in explained & firings.latest.keys()]
    prior = votes.usual_rate(check) * len(members)
    for unexplained in firings.unexplained(excluded, prior, now, after_receipt):
        nodes, since = unexplained.nodes, now - unexplained.window
        if not is_everywhere and not _has_independent(nodes, unexplained.limit, topologies, members):
            continue
        others = nodes - affected
        has_version = others <= after_receipt or have_new_version(votes, others, now)
        if has_version and len(others) >= unexplained.limit:
            return unexplained
        if len(nodes - in_clear) < votes.rule.min_nodes and not is_everywhere:
            continue
        shown = sum(at > since for at in explained_onsets)
        firing = _Firing(members, topologies, excluded, unexplained, voters, shown)
        ratio = firing.log_ratio_of_fleet([members.nodes(candidate.domain) for candidate in likely])
        if ratio > log(_CLEARLY_LIKELIER):
            return unexplained
    return None


def _has_independent(uids: Set[str], least: int, topologies: Set[str], members: DomainMembers) -> bool:
    """Return whether so many of some nodes count as independent: few of a lowest domain of the topologies."""
    leaves: Counter[str] = Counter()
    density = _TIMES_ITS_PART * len(uids) / len(members)
    for uid in uids:
        paths = (path for path in members.paths(uid) if members.topology_of(path) in topologies)
        leaf = next((path for path in paths if not members.children(path)), uid)
        if leaves[leaf] < max(_OF_ONE, ceil(density * members.size(leaf))):
            leaves[leaf] += 1
            least -= 1
        if least <= 0:
            return True
    return False


class _Firing:
    """The nodes on which a check fires, and the domains that may explain it.

    members: all nodes. topologies: of domains that may cause it. excluded: nodes with another cause; it fires
    on `shown` of them, too. voters: of candidates.
    """

    def __init__(
        self,
        members: DomainMembers,
        topologies: Set[str],
        excluded: Set[str],
        unexplained: UnexplainedFirings,
        voters: Set[str],
        shown: int,
    ) -> None:
        self._members, self._topologies, self._excluded = members, topologies, excluded
        self._nodes, self._limit, self._shown = unexplained.nodes | voters, unexplained.limit, shown
        self._size, self._most = len(members), _largest_affected(members)
        # Usual numbers have three decimals: a chance of zero has no logarithm.
        self._chance = min(0.5, max(unexplained.usual, 0.001) / len(members))
        self._by_chance = _TIMES_USUAL * unexplained.usual
        # Nodes without a location may be in any domain.
        self._lost = self._nodes
        for domain in chain.from_iterable(map(members.children, topologies)):
            self._lost = self._lost - members.nodes(domain)

    def log_ratio_of_fleet(self, candidates: Sequence[Set[str]]) -> float:
        """Return how much likelier one cause of the fleet, besides or instead of faults of domains, makes the
        firings than such faults only, as a logarithm. candidates: the nodes of each domain that may be
        degraded.
        """
        without = with_cause = -inf
        causes = [candidates, ()] if candidates else [()]
        for paths, others in product(chain([()], self._largest()), causes):
            domains = [*others, *map(self._members.nodes, paths)]
            likelihoods = self._likelihoods(domains, may_be_slow=any(map(self._members.children, paths)))
            without, with_cause = max(without, likelihoods[0]), max(with_cause, likelihoods[1])
        return with_cause - without

    def _largest(self) -> Iterator[Sequence[str]]:
        """Yield, for each level of the topologies, the domain with most of the nodes, and the first two."""
        for topology in self._topologies:
            level: Iterable[str] = self._members.children(topology)
            while level:
                counts = [(len(self._nodes & self._members.nodes(path)), path) for path in level]
                largest = [path for count, path in nlargest(_CAUSES, counts) if count]
                yield from (largest[:count] for count in range(1, len(largest) + 1))
                level = [child for count, path in counts if count for child in self._members.children(path)]

    def _likelihoods(self, domains: Iterable[Set[str]], *, may_be_slow: bool) -> tuple[float, float]:
        """Return the logarithms of the likelihood of the firings with faults of some domains: without and
        with one cause of all other nodes. Without it, a node fires by chance, with the label of another
        place, or without a location. may_be_slow: whether a parent is among them, which shows slowly.
        """
        of_domains, covered, inside = 0.0, set[str](), 0
        for domain in domains:
            rest = domain - covered - self._excluded
            firing = len(self._nodes & rest)
            of_domains += shared_fault_evidence(firing, len(rest), 1.0)
            inside += firing
            covered |= rest
        if len(covered) > self._most:
            return -inf, -inf
        outside, size = self._nodes - covered, self._size - len(covered)
        if may_be_slow and len(outside) <= self._by_chance:
            return 0.0, -inf
        lost, placed = len(outside & self._lost), len(outside - self._lost)
        shown = inside + self._shown
        share = shown / len(self._members)
        chance = max(self._chance, WRONG_LABEL * share)
        without = of_domains + placed * log(chance) + lost * log(max(chance, share))
        without += (size - len(outside)) * log1p(-chance)
        # Fewer may be in the domains, without a location or with the label of another place.
        counted = placed + (lost if lost > shown else 0)
        is_wide = counted >= self._limit and counted > _MISPLACED * shown
        with_cause = of_domains + shared_fault_evidence(len(outside), size, 1.0)
        return without, with_cause if is_wide else -inf


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
    return len(set[str]().union(*locations)) > _largest_affected(members)


def _largest_affected(members: DomainMembers) -> float:
    """Return the maximum number of nodes of domains that fail at once: of those with a location, by the
    topology that most nodes have.
    """
    located = (sum(map(members.size, members.children(topology))) for topology in LOCATION_TOPOLOGIES)
    return MAX_FLEET_SHARE * max(located)
