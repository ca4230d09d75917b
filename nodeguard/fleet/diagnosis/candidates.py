"""Candidates: the domains that explain the votes of a fault class best. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, lgamma, log

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.likelihood import (
    CLEARLY_LIKELIER,
    WRONG_LABEL,
    shared_fault_evidence,
    two_shares_evidence,
)
from nodeguard.fleet.diagnosis.results import Candidate, most_children
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.votes import AFTER_RECEIPT, BEFORE_RECEIPT, FaultVotes, VoteContext
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES

# A child with fewer nodes than this share of the largest one has nodes by wrong labels: assumed.
_SMALL_PART = 0.2

_NONE: dict[str, float] = {}


def significant_domains(votes: FaultVotes, leaves: Iterable[str], now: float) -> dict[str, Candidate]:
    """Return the affected lowest domains, each with its candidate: the widest affected parent, or itself."""
    candidates: dict[str, Candidate] = {}
    affected, members = _AffectedDomains(votes, now), votes.context.members
    for leaf in leaves:
        domain, candidate = leaf, None
        while affected.is_too_small(domain) and members.parent(domain):
            domain = members.parent(domain)
        while domain:
            wider, lead = affected.evaluate(domain)
            if wider is not None:
                candidate = wider
            elif candidate is not None and lead > -log(CLEARLY_LIKELIER):
                candidate = replace(candidate, is_disputed=True)
            domain = members.parent(domain)
        if candidate is not None:
            candidates[leaf] = candidate
    return candidates


def parts_of(domain: str, context: VoteContext) -> list[str]:
    """Return the children of a domain, if any has enough nodes to be degraded, without those that have a few
    nodes because of wrong labels.
    """
    members, min_nodes = context.members, context.rule.min_nodes
    sizes = {child: members.size(child) for child in members.children(domain)}
    largest = max(sizes.values(), default=0)
    least = min(min_nodes, _SMALL_PART * largest)
    return [child for child, size in sizes.items() if largest >= min_nodes and size >= least]


class _AffectedDomains:
    """The domains that the votes of a fault class affect more than by chance, each evaluated once."""

    def __init__(self, votes: FaultVotes, now: float) -> None:
        self._votes = votes
        self._context = votes.context
        self._rule = votes.context.rule
        self._members = votes.context.members
        self._now = now
        self._evaluated: dict[str, tuple[Candidate | None, float]] = {}
        self._recent: dict[float, int] = {}  # voters in the fleet, by window

    def evaluate(self, domain: str) -> tuple[Candidate | None, float]:
        """Return the candidate of a domain, None if the domain is not affected as a whole; and how much
        likelier one fault of it makes the votes than faults of its parts, in the window in which it is most:
        as a logarithm, minus infinity if chance explains the votes.
        """
        if domain not in self._evaluated:
            self._evaluated[domain] = self._evaluate(domain)
        return self._evaluated[domain]

    def _evaluate(self, domain: str) -> tuple[Candidate | None, float]:
        votes, members = self._votes, self._members
        parts = parts_of(domain, self._context)
        parent_share = votes.vote_rules[members.topology_of(domain)].share
        share = parent_share if parts else votes.vote_class.share
        candidates, largest_lead = list[Candidate](), -inf
        for window, voters in self._significant_votes(domain, share):
            lead, of_fleet = self._compare(domain, parts, window, voters) if parts else (inf, inf)
            largest_lead, least = max(largest_lead, lead), min(lead, of_fleet)
            if least > 0.0:
                size, is_disputed = members.size(domain), least < log(CLEARLY_LIKELIER)
                candidates.append(Candidate(votes.vote_class.name, domain, window, voters, size, is_disputed))
        # The shortest window has the fewest older faults of single nodes. A slow fault is only clear in a
        # longer one.
        clear = (item for item in candidates if not (item.is_disputed or votes.is_weak(item)))
        return next(clear, candidates[-1] if candidates else None), largest_lead

    def is_too_small(self, domain: str) -> bool:
        """Return whether a domain has too few nodes to be degraded: one, or two like each of its siblings, of
        which the parent is the lowest domain.
        """
        size, parent = self._members.size(domain), self._members.parent(domain)
        if size >= self._rule.min_nodes:
            return False
        return size < self._rule.fewest_affected(size) or bool(parent and not parts_of(parent, self._context))

    def _significant_votes(self, domain: str, share: float) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield each window in which a domain has more votes than chance explains, with the voters."""
        votes, size = self._votes, self._members.size(domain)
        if self.is_too_small(domain):
            return
        all_voters = votes.voters(domain, self._now, votes.longest_window)
        if self._members.topology_of(domain) in VERSION_TOPOLOGIES:
            yield from self._after_receipt(domain, all_voters)
        by_share = self._rule.fewest_affected(size, share)
        for window in votes.vote_class.windows:
            voters = {uid: at for uid, at in all_voters.items() if at > self._now - window}
            if len(voters) < by_share:
                continue
            chance = votes.chance(window, self._now)
            if significance(len(voters), size, chance) >= self._rule.significance_exponent:
                yield window, voters

    def _after_receipt(
        self, version: str, all_voters: Mapping[str, float]
    ) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield the voters of a version that voted soon after they received it, with the window for that, if
        they are more than chance explains. They may be few of its nodes, and a rollout may take hours.
        """
        changes = self._context.version_changes
        voters = {
            uid: at
            for uid, at in all_voters.items()
            if -BEFORE_RECEIPT <= at - changes.get(uid, _NONE).get(version, inf) <= AFTER_RECEIPT
        }
        if len(voters) < self._rule.min_nodes:
            return
        others = len(self._votes.current_voters(self._now)) - len(all_voters)
        elsewhere = max(1, len(self._members) - self._members.size(version))
        chance = max(self._votes.chance(AFTER_RECEIPT, self._now), min(0.999, others / elsewhere))
        received = sum(1 for uid in self._members.nodes(version) if version in changes.get(uid, _NONE))
        if significance(len(voters), received, chance) >= self._rule.significance_exponent:
            yield AFTER_RECEIPT, voters

    def _compare(
        self, domain: str, parts: Sequence[str], window: float, voters: Mapping[str, float]
    ) -> tuple[float, float]:
        """Return how much likelier one fault of a parent makes the votes than faults of its parts, and than
        one cause of the whole fleet, as logarithms: infinity if most parts are affected.
        """
        candidates = [candidate for part in parts if (candidate := self.evaluate(part)[0]) is not None]
        if _fail_in_turn(candidates):
            return -inf, -inf
        if len(candidates) >= most_children(len(parts)):
            return inf, inf
        if window not in self._recent:
            self._recent[window] = len(self._votes.current_voters(self._now, window))
        size, fleet, all_voters = self._members.size(domain), len(self._members), self._recent[window]
        # Another node votes by itself, or has the wrong label and belongs to a domain that fails.
        chance = self._votes.chance(window, self._now) + WRONG_LABEL * all_voters / fleet
        # Also a part that is not affected yet may explain the votes better.
        nodes = (self._members.nodes(part) for part in parts)
        evidence = (shared_fault_evidence(len(voters.keys() & own), len(own), chance) for own in nodes)
        whole = shared_fault_evidence(len(voters), size, chance)
        lead = whole - sum(max(0.0, part) for part in evidence)
        if len(candidates) > 1:
            lead -= log(CLEARLY_LIKELIER)  # several parts that are affected themselves may fail together
        return lead, two_shares_evidence(len(voters), size, all_voters, fleet)


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
_PAUSE, _IN_TURN_CHANCE = 120.0, 0.01
