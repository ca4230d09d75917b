"""Candidates: the widest domains that the votes of a fault class confirm. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import lgamma, log

from nodeguard.fleet.diagnosis.likelihood import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.results import Candidate, most_children
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers


def significant_domains(
    votes: FaultVotes, leaves: Iterable[str], members: DomainMembers, now: float
) -> dict[str, Candidate]:
    """Return the affected lowest domains, each with its candidate: the widest affected parent, or itself."""
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
