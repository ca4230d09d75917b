"""Candidates: the widest domains that the votes of a fault class confirm, and versions that explain more.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import chain, pairwise
from math import lgamma, log

from nodeguard.fleet.diagnosis.likelihood import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.results import Candidate, most_children
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES


def significant_domains(
    votes: FaultVotes, leaves: Iterable[str], members: DomainMembers, now: float
) -> dict[str, Candidate]:
    """Return the lowest domains that are affected more than by chance, each with its candidate: the outermost
    parent that is affected as a whole, or the domain itself.
    """
    candidates: dict[str, Candidate] = {}
    affected = _AffectedDomains(votes, members, now)
    for leaf in leaves:
        lowest = leaf
        while votes.is_too_small(lowest) and members.parent(lowest):
            lowest = members.parent(lowest)
        candidate, above = affected.candidate(lowest), members.parent(lowest)
        while candidate is None and above:
            candidate, above = affected.concentrated_candidate(above), members.parent(above)
        if candidate is None:
            continue
        while above and (wider := affected.candidate(above)) is not None:
            candidate, above = wider, members.parent(above)
        candidates[leaf] = candidate
    return candidates


# A parent is affected if one fault of it makes the votes so many times likelier than faults of its parts, or
# than one cause of the whole fleet.
_CLEARLY_LIKELIER = 20.0


class _AffectedDomains:
    """The domains that the votes of a fault class affect more than by chance, each evaluated once."""

    def __init__(self, votes: FaultVotes, members: DomainMembers, now: float) -> None:
        self._votes = votes
        self._members = members
        self._now = now
        self._candidates: dict[str, Candidate | None] = {}
        self._recent: dict[float, int] = {}  # voters in the fleet, by window

    def candidate(self, domain: str) -> Candidate | None:
        """Return the candidate of a domain; None if the domain is not affected as a whole."""
        if domain not in self._candidates:
            # The shortest window has the fewest older faults of single nodes. A slow fault is only clear in a
            # longer one.
            evaluated = list(self._evaluated(domain))
            clear = (candidate for candidate in evaluated if not self._votes.is_weak(candidate))
            self._candidates[domain] = next(clear, evaluated[-1] if evaluated else None)
        return self._candidates[domain]

    def concentrated_candidate(self, domain: str) -> Candidate | None:
        """Return the candidate of a domain without an affected part, if one fault of it makes the votes
        likelier than one cause of the fleet: votes that are everywhere may look like those of a parent.
        """
        candidate = self.candidate(domain)
        if candidate is None:
            return None
        window, fleet = candidate.window, len(self._members)
        chance = max(WRONG_LABEL, self._votes.chance(window, self._now))
        evidence = shared_fault_evidence(len(candidate.voters), candidate.size, chance)
        of_fleet = shared_fault_evidence(self._votes_of_fleet(window), fleet, chance)
        return candidate if evidence >= of_fleet + log(_CLEARLY_LIKELIER) else None

    def _evaluated(self, domain: str) -> Iterator[Candidate]:
        """Yield the candidate of a domain for each window in which it is affected."""
        votes, members = self._votes, self._members
        is_parent = bool(votes.parts(domain))
        parent_share = votes.vote_rules[members.topology_of(domain)].share
        share = parent_share if is_parent else votes.vote_class.share
        for window, voters in votes.significant_votes(domain, self._now, share):
            if is_parent and not self._is_whole(domain, window, voters):
                continue
            yield Candidate(votes.vote_class.name, domain, window, voters, members.size(domain))

    def _is_whole(self, domain: str, window: float, voters: Mapping[str, float]) -> bool:
        """Return whether most children of a parent domain are affected, or one fault of it makes the votes
        likelier than faults of its children.
        """
        children = self._votes.parts(domain)
        candidates = [candidate for child in children if (candidate := self.candidate(child)) is not None]
        if _fail_in_turn(candidates):
            return False
        if len(candidates) >= most_children(len(children)):
            return True
        chance = self._chance(domain, window, len(voters), has_parts=bool(candidates))
        # Also a child that is not affected yet may explain the votes better.
        nodes = (self._members.nodes(child) for child in children)
        parts = (shared_fault_evidence(len(voters.keys() & own), len(own), chance) for own in nodes)
        whole = shared_fault_evidence(len(voters), self._members.size(domain), chance)
        return whole >= sum(max(0.0, part) for part in parts) + log(_CLEARLY_LIKELIER)

    def _chance(self, domain: str, window: float, voters: int, *, has_parts: bool) -> float:
        """Return the probability that a node votes within a window without a fault of a domain: by the usual
        rate, as the rest of the fleet does now, or with the label of another place, if any other fails.
        has_parts: whether a part of it is affected.
        """
        elsewhere = len(self._members) - self._members.size(domain)
        others = self._votes_of_fleet(window) - voters
        share = others / elsewhere if elsewhere else 0.0
        return max(share, self._votes.chance(window, self._now), WRONG_LABEL if others or has_parts else 0.0)

    def _votes_of_fleet(self, window: float) -> int:
        """Return the number of nodes in the fleet with a vote within a window."""
        if window not in self._recent:
            self._recent[window] = self._votes.recent(window, self._now)
        return self._recent[window]


def _fail_in_turn(children: Iterable[Candidate]) -> bool:
    """Return whether children fail in turn, such as leaf switches that are upgraded: the votes in a child all
    come after those in another, and only rarely by chance. A parent fails as a whole.
    """
    times = sorted(sorted(child.voters.values()) for child in children)
    if any(later[0] < earlier[-1] + _PAUSE for earlier, later in pairwise(times)):
        return False
    orders = lgamma(len(times) + 1) + sum(lgamma(len(own) + 1) for own in times)
    return orders - lgamma(sum(map(len, times)) + 1) <= log(_IN_TURN_CHANCE)


# Children fail in turn if there are so many seconds between two of them, and if their votes would come in
# such an order with at most this probability: assumed.
_PAUSE, _IN_TURN_CHANCE = 240.0, 0.01


# The share of nodes that counts as all; the share of the fleet above which a version distinguishes no nodes;
# and the overlap above which a version and a domain are the same nodes.
_MIN_VOTER_SHARE = 0.9
MAX_FLEET_SHARE = 0.8
_MIN_OVERLAP = 0.6

# Minimum exponent of the bound on chance, one in a thousand, for a version with more than its share.
_MIN_SIGNIFICANCE = 6.9

# Seconds for which a version is new on a node: a fault that begins later is more likely another one.
_NEW_SECONDS = 14_400.0

# Topologies of the versions that may make a check wrong on a fact, the likeliest first.
_MAKES_FINDINGS = ("catalogue", "agent", "driver")


def common_version(members: DomainMembers, uids: Iterable[str]) -> str:
    """Return the version that nearly all of some nodes have and few others; empty for none."""
    return next(iter(_common_versions(members, frozenset(uids))), "")


def recent_version(
    members: DomainMembers, uids: Iterable[str], changed: Mapping[tuple[str, str], float], now: float
) -> str:
    """Return the version that nearly all of some nodes have and few others, if they got it recently; empty
    for none. changed: when nodes got another version, by uid and version.
    """
    uids = frozenset(uids)
    for path in _common_versions(members, uids):
        if _is_new(path, uids, changed, now):
            return path
    return ""


def received_version(uids: Collection[str], changed: Mapping[tuple[str, str], float], now: float) -> str:
    """Return the catalogue, agent or driver that nearly all of some nodes got recently, whichever others
    have it; empty for none. changed: see recent_version.
    """
    counts = Counter(path for (uid, path), at in changed.items() if uid in uids and now - at < _NEW_SECONDS)
    for topology in _MAKES_FINDINGS:
        for path, count in sorted(counts.items()):
            if path.partition("/")[0] == topology and count >= _MIN_VOTER_SHARE * len(uids):
                return path
    return ""


def new_version(
    members: DomainMembers, candidate: Candidate, changed: Mapping[tuple[str, str], float], now: float
) -> str:
    """Return the version that only the nodes of a candidate domain got recently; empty for none."""
    domain = members.nodes(candidate.domain)
    for path, count in _versions(members, frozenset(candidate.voters)).items():
        nodes = members.nodes(path)
        if (
            count >= _MIN_VOTER_SHARE * len(candidate.voters)
            and _is_new(path, candidate.voters, changed, now)
            and len(nodes & domain) >= _MIN_OVERLAP * len(nodes)
        ):
            return path
    return ""


def _common_versions(members: DomainMembers, uids: Set[str]) -> list[str]:
    """Return the versions that nearly all of some nodes have and few others, the rarest first."""
    found: list[tuple[int, int, str]] = []
    for path, count in _versions(members, uids).items():
        size = members.size(path)
        if (
            count >= _MIN_VOTER_SHARE * len(uids)
            and size <= MAX_FLEET_SHARE * len(members)
            and significance(count, len(uids), size / len(members)) >= _MIN_SIGNIFICANCE
        ):
            found.append((size, VERSION_TOPOLOGIES.index(members.topology_of(path)), path))
    return [path for _, _, path in sorted(found)]


def _is_new(
    version: str, uids: Collection[str], changed: Mapping[tuple[str, str], float], now: float
) -> bool:
    """Return whether at least half of some nodes got a version recently."""
    changes = sum(1 for uid in uids if now - changed.get((uid, version), -_NEW_SECONDS) < _NEW_SECONDS)
    return changes * 2 >= len(uids)


def _versions(members: DomainMembers, uids: Set[str]) -> dict[str, int]:
    """Return how many of some nodes have each version."""
    paths = dict.fromkeys(chain.from_iterable(map(members.paths, uids)))
    versions = (path for path in paths if members.topology_of(path) in VERSION_TOPOLOGIES)
    return {path: len(members.nodes(path) & uids) for path in versions}
