"""Candidates: the widest domains that the votes of a fault class confirm. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import inf, lgamma, log

from nodeguard.fleet.diagnosis.results import Candidate, most_children
from nodeguard.fleet.diagnosis.significance import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES


def significant_domains(
    index: VoteIndex, votes: FaultVotes, leaves: Iterable[str], now: float
) -> dict[str, Candidate]:
    """Return the affected lowest domains, each with its candidate: the widest affected parent, or itself."""
    candidates: dict[str, Candidate] = {}
    affected, members = _AffectedDomains(index, votes, now), index.members
    for leaf in leaves:
        lowest = leaf
        while affected.is_too_small(lowest) and members.parent(lowest):
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

    def __init__(self, index: VoteIndex, votes: FaultVotes, now: float) -> None:
        self._votes = votes
        self._members = index.members
        self._versions = index.versions
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

    def is_too_small(self, domain: str) -> bool:
        """Return whether a domain has too few nodes to be degraded: one, or two like each of its siblings, of
        which the parent is the lowest domain.
        """
        size, parent, rule = self._members.size(domain), self._members.parent(domain), self._votes.rule
        if size >= rule.min_nodes:
            return False
        return size < rule.fewest_affected(size) or bool(parent and not self._parts(parent))

    def _parts(self, domain: str) -> list[str]:
        """Return the children of a domain, if any has enough nodes to be degraded, without those that have a
        few nodes because of wrong labels.
        """
        sizes = {child: self._members.size(child) for child in self._members.children(domain)}
        largest, least = max(sizes.values(), default=0), self._votes.rule.min_nodes
        if largest < least:
            return []
        return [child for child, size in sizes.items() if size >= min(least, _SMALL_PART * largest)]

    def _evaluated(self, domain: str) -> Iterator[Candidate]:
        """Yield the candidate of a domain for each window in which it is affected."""
        votes, members = self._votes, self._members
        is_parent = bool(self._parts(domain))
        parent_share = votes.vote_rules[members.topology_of(domain)].share
        share = parent_share if is_parent else votes.vote_class.share
        for window, voters in self._significant_votes(domain, share):
            if is_parent and not self._is_whole(domain, window, voters):
                continue
            yield Candidate(votes.vote_class.name, domain, window, voters, members.size(domain))

    def _significant_votes(self, domain: str, share: float) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield each window in which a domain has more votes than chance explains, with the voters."""
        votes, size, now = self._votes, self._members.size(domain), self._now
        least = votes.rule.fewest_affected(size)
        if self.is_too_small(domain) or len(votes.latest_votes(domain)) < least:
            return
        if self._members.topology_of(domain) in VERSION_TOPOLOGIES:
            yield from self._after_receipt(domain)
        by_share = votes.rule.fewest_affected(size, share)
        for window in votes.vote_class.windows:
            voters, chance = votes.voters(domain, now, window), votes.chance(window, now)
            if len(voters) >= by_share and votes.are_significant(len(voters), size, chance):
                yield window, voters

    def _after_receipt(self, version: str) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield the voters of a version that voted soon after they received it, with the window for that, if
        they are more than chance explains. They may be few of its nodes, and a rollout may take hours.
        """
        votes, members, received_at = self._votes, self._members, self._versions.received_at
        all_voters = votes.voters(version, self._now, votes.longest_window)
        voters = {
            uid: at
            for uid, at in all_voters.items()
            if -_REPORTED <= at - received_at(uid, version) <= _AFTER_RECEIPT
        }
        if len(voters) < votes.rule.min_nodes:
            return
        others = len(votes.current_voters(self._now)) - len(all_voters)
        elsewhere = max(1, len(members) - members.size(version))
        chance = max(votes.chance(_AFTER_RECEIPT, self._now), min(0.999, others / elsewhere))
        received = sum(received_at(uid, version) > -inf for uid in members.nodes(version))
        if votes.are_significant(len(voters), received, chance):
            yield _AFTER_RECEIPT, voters

    def _is_whole(self, domain: str, window: float, voters: Mapping[str, float]) -> bool:
        """Return whether most children of a parent domain are affected, or one fault of it makes the votes
        likelier than faults of its children.
        """
        children = self._parts(domain)
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
            self._recent[window] = len(self._votes.current_voters(self._now, window))
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

# A child with fewer nodes than this share of the largest one has nodes by wrong labels: assumed.
_SMALL_PART = 0.2

# Seconds within which a bad version shows on a node: checks wait for up to ten minutes. Assumed.
_AFTER_RECEIPT = 900.0

# A report may tell a fault some seconds before it tells the version that brought it: assumed.
_REPORTED = 60.0
