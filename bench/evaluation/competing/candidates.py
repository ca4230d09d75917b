"""Candidates that wait for the settling time before their domain is degraded, by competing explanations.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterator

from bench.evaluation.competing.explanations import Candidate, ClassExplanations
from bench.evaluation.competing.likelihoods import SURE
from nodeguard.fleet.diagnosis.degraded_domains import DegradedDomains
from nodeguard.fleet.diagnosis.results import Candidate as DomainCandidate
from nodeguard.fleet.diagnosis.settling_candidates import SOON, SettlingCandidates
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers

# Seconds for which votes of a fault that lasts until it is fixed count.
_LASTING = 7_200.0


class CompetingCandidates(SettlingCandidates):
    """The candidates. possible: by fault class, domains that too few nodes speak for until now."""

    def __init__(self, votes: VoteIndex, domains: DegradedDomains) -> None:
        super().__init__(votes, domains)
        self._competing: defaultdict[str, list[Candidate]] = defaultdict(list)
        self.possible: dict[str, tuple[Candidate, ...]] = {}

    def choose(self, _suppressed: Container[str], now: float) -> list[DomainCandidate]:
        """Return the candidates: domains that become degraded after the settling time."""
        # All are evaluated every few seconds; those with new votes are evaluated at once.
        is_due = now >= self._chose + SOON
        self._chose = now if is_due else self._chose
        for fault_class, votes in self._votes.votes_by_class.items():
            new_voters, self._votes.new_voters[fault_class] = self._votes.new_voters[fault_class], set()
            if new_voters or (is_due and self._competing[fault_class]):
                self._competing[fault_class] = list(self._explanations(votes, now))
        chosen = list[DomainCandidate]()
        for candidates in self._competing.values():
            chosen += candidates
        self._continue_clocks(chosen, now)
        return chosen

    def _explanations(self, votes: FaultVotes, now: float) -> Iterator[Candidate]:
        """Yield the domains that explain the votes for a class and are not degraded for it. New votes in a
        degraded domain join it.
        """
        fault_class, members = votes.vote_class, self._votes.members
        voters = counted(votes, members, now, votes.longest_window)
        if fault_class.lasting:
            active = self._votes.active_nodes(fault_class.name)
            lasting = counted(votes, members, now, max(votes.longest_window, _LASTING))
            voters |= {uid: at for uid, at in lasting.items() if uid in active}
        # Nodes of a degraded domain without a recent vote are neither healthy nor a new fault.
        explained = self._domains.explained(fault_class.name)
        excluded = explained - voters.keys()
        if len(voters) < self._votes.rule.min_nodes and explained.isdisjoint(voters):
            return
        explanations = ClassExplanations(votes, members, voters, self._votes.rule, excluded, now)
        self.possible.pop(fault_class.name, None)
        for candidate in explanations.candidates():
            if self._domains.covering(candidate) is not None:
                self._domains.join(candidate)
            elif self._explains_more(candidate):
                yield candidate
        self.possible[fault_class.name] = explanations.possible()

    def _explains_more(self, candidate: Candidate) -> bool:
        """Return whether a candidate explains enough votes that no degraded domain explains. One that a
        degraded domain is a part of explains the votes of that, too.
        """
        new = candidate.voters.keys() - self._domains.explained(candidate.fault_class, candidate.domain)
        return len(new) >= max(self._votes.rule.min_nodes, -(-len(candidate.voters) // 2))

    def settled_candidates(
        self, candidates: Collection[DomainCandidate], now: float
    ) -> Iterator[DomainCandidate]:
        """Yield the candidates that have waited for long enough: longer if another explanation is near."""
        for candidate in candidates:
            waited = now - self.clocks[candidate.fault_class, candidate.domain]
            margin = candidate.margin if isinstance(candidate, Candidate) else 0.0
            is_near = margin < SURE
            wait = self._votes.rule.weak_evidence.wait if is_near else self._votes.rule.grace_period
            if margin > 0.0 and waited >= wait and self._settles(candidate, waited, now):
                yield candidate

    def drop(self, candidate: DomainCandidate) -> None:
        """See SettlingCandidates."""
        super().drop(candidate)
        self._competing[candidate.fault_class] = [
            other for other in self._competing[candidate.fault_class] if other.domain != candidate.domain
        ]


def counted(votes: FaultVotes, members: DomainMembers, now: float, within: float) -> dict[str, float]:
    """Return the nodes with a vote that counts for a domain, with their latest vote."""
    voters: dict[str, float] = {}
    for topology in votes.vote_rules:
        for root in members.children(topology):
            voters |= votes.voters(root, now, within)
    return voters
