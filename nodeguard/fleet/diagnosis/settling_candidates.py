"""Candidates that wait for the settling time before their domain is degraded: of each fault class, those that
explain its votes best. Pure.

A rack without power and a leaf switch that fails show in the same nodes. The domains of each topology are
compared by the likelihood of the votes: a domain that fails shows in an unknown share of its nodes. Another
node with a vote has a wrong label, or a fault of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from math import log

from nodeguard.fleet.diagnosis.candidates import parts_of, significant_domains
from nodeguard.fleet.diagnosis.degraded_domains import DegradedDomains
from nodeguard.fleet.diagnosis.likelihood import WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.results import Candidate, DegradedDomain, fewest_nodes
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import is_within

# Seconds within which a fault begins on all nodes of a domain, if the windows of its class are no longer.
_SAME_TIME = 600.0

# The first topology of a fault class, its likeliest cause, is named unless another is so many times likelier:
# in general, and for parts of wider domains. A leaf switch that fails shows in its ports, which have a class
# of their own, while in many fleets a rack has the nodes of a leaf, but for wrong labels.
_CLEARLY_LIKELIER, _PART_CLEARLY_LIKELIER = 5.0, 100.0


class SettlingCandidates:
    """The candidates. clocks: since when each is chosen, by fault class, domain, and if it is disputed."""

    def __init__(self, votes: VoteIndex, domains: DegradedDomains) -> None:
        self.clocks: dict[tuple[str, str, bool], float] = {}
        self._votes = votes
        self._domains = domains
        # The lowest affected domains, each with its candidate, by fault class.
        self._affected: defaultdict[str, dict[str, Candidate]] = defaultdict(dict)

    def forget(self, cleared: DegradedDomain) -> None:
        """Forget what was affected in a domain that is not degraded any more."""
        for fault_class in cleared.fault_classes:
            self._affected[fault_class] = {
                leaf: candidate
                for leaf, candidate in self._affected[fault_class].items()
                if not is_within(leaf, cleared.domain)
            }

    def choose(self, suppressed: Container[str], now: float, *, only_new: bool) -> list[Candidate]:
        """Return the candidates: domains that become degraded after the settling time. suppressed: checks.
        only_new: whether only candidates with new votes are evaluated again.
        """
        chosen: list[Candidate] = []
        for fault_class, votes in self._votes.votes_by_class.items():
            new_voters, votes.new_voters = votes.new_voters, set()
            leaves = {leaf for uid in new_voters for leaf in votes.lowest_domains(uid)}
            if not only_new:
                leaves |= self._affected[fault_class].keys()
            if not leaves and not self._affected[fault_class]:
                continue
            affected = significant_domains(votes, sorted(leaves), now)
            self._affected[fault_class] = self._still_affected(votes, leaves, suppressed) | affected
            for candidate in {candidate.domain: candidate for candidate in affected.values()}.values():
                self._domains.join(candidate)
            candidates = {candidate.domain: candidate for candidate in self._affected[fault_class].values()}
            new = [
                candidate
                for candidate in candidates.values()
                if not self._domains.covering(candidate) and self._explains_more(candidate, votes, now)
            ]
            chosen += self._needed(new, votes, now)
        self._continue_clocks(chosen, now)
        return chosen

    def _continue_clocks(self, chosen: Collection[Candidate], now: float) -> None:
        """Begin the clocks of new candidates. A wider domain continues the clock of its part, if both are as
        clear: while a candidate is disputed, the grace period has not begun.
        """
        clocks = {_clock_of(candidate): now for candidate in chosen}
        for (fault_class, domain, is_disputed), since in self.clocks.items():
            for candidate in chosen:
                clock = _clock_of(candidate)
                if clock[::2] == (fault_class, is_disputed) and is_within(domain, candidate.domain):
                    clocks[clock] = min(since, clocks[clock])
        self.clocks = clocks

    def settled_candidates(self, candidates: Collection[Candidate], now: float) -> Iterator[Candidate]:
        """Yield the candidates that have been chosen for long enough: for longer with few voters, and if they
        are disputed. Then the wait ends before the votes leave the window.
        """
        rule = self._votes.rule
        for candidate in candidates:
            wait = rule.grace_period
            if self._votes.votes_by_class[candidate.fault_class].is_weak(candidate):
                wait = max(wait, rule.weak_evidence.wait)
            elif candidate.is_disputed:
                wait = max(wait, min(rule.weak_evidence.wait, candidate.window / 2))
            if now - self.clocks[_clock_of(candidate)] < wait:
                continue
            if not (self._has_ended(candidate) or self._votes.were_judged(candidate.voters, wait)):
                yield candidate

    def drop(self, candidate: Candidate) -> None:
        """Drop a candidate."""
        self.clocks.pop(_clock_of(candidate), None)

    def _explains_more(self, candidate: Candidate, votes: FaultVotes, now: float) -> bool:
        """Return whether one fault of a candidate explains all votes in it better than its degraded parts
        and chance. While votes leave the window, or healthy parts leave the fleet, the votes of the parts
        only seem to be of the whole.
        """
        parts = self._domains.parts(candidate.fault_class, candidate.domain)
        if not parts:
            return True
        members = self._votes.members
        nodes = set[str]().union(*(members.nodes(part.domain) for part in parts))
        in_parts = (candidate.voters.keys() & nodes).union(*(part.voters for part in parts))
        others = candidate.voters.keys() - in_parts
        chance = max(WRONG_LABEL, votes.chance(candidate.window, now))
        all_voters, size = len(in_parts) + len(others), len(members.nodes(candidate.domain) | in_parts)
        whole = shared_fault_evidence(all_voters, size, chance)
        return whole > shared_fault_evidence(len(in_parts), len(nodes | in_parts), chance)

    def _needed(self, candidates: Sequence[Candidate], votes: FaultVotes, now: float) -> Iterator[Candidate]:
        """Yield the candidates of one fault class that are needed to explain the votes: those of the topology
        that explains them best, then others with enough further votes.
        """
        covered: set[str] = set()

        def unexplained(candidate: Candidate) -> set[str]:
            # It explains the votes of its own degraded parts better: otherwise these would be the candidates.
            explained = self._domains.explained(candidate.fault_class, candidate.domain)
            return candidate.voters.keys() - covered - explained

        while candidates:
            best = self._likeliest(candidates, votes, unexplained, now)
            for candidate in best:
                least = self._votes.rule.fewest_affected(candidate.size)
                if len(unexplained(candidate)) >= max(least, -(-len(candidate.voters) // 2)):
                    yield candidate
                    covered |= candidate.voters.keys()
            candidates = [candidate for candidate in candidates if candidate not in best]

    def _likeliest(
        self,
        candidates: Iterable[Candidate],
        votes: FaultVotes,
        unexplained: Callable[[Candidate], Set[str]],
        now: float,
    ) -> list[Candidate]:
        """Return the candidates of the topology that explains best the votes that nothing else explains. A
        node without a location in one of the topologies may be in any domain of it: it is not compared.
        """
        by_topology: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in candidates:
            by_topology[candidate.domain.partition("/")[0]].append(candidate)
        compared = self._compared_voters(by_topology)

        def evidence(candidate: Candidate, explained: Set[str]) -> float:
            chance = max(WRONG_LABEL, votes.chance(candidate.window, now))
            counted = len((unexplained(candidate) & compared) - explained)
            return max(0.0, shared_fault_evidence(len(candidate.voters), candidate.size, chance, counted))

        totals = dict.fromkeys(by_topology, 0.0)
        for topology, own in by_topology.items():
            explained = set[str]()  # a disputed domain has the votes of its parts, too
            for candidate in sorted(own, key=lambda candidate: -evidence(candidate, frozenset())):
                totals[topology] += evidence(candidate, explained)
                explained |= candidate.voters.keys()
        best = max(totals, key=lambda topology: totals[topology])
        are_parts = all(self._is_part(candidate.domain) for candidate in by_topology[best])
        enough = totals[best] - log(_PART_CLEARLY_LIKELIER if are_parts else _CLEARLY_LIKELIER)
        return next(
            by_topology[topology]
            for topology in votes.vote_rules
            if topology in by_topology and totals[topology] >= enough
        )

    def _compared_voters(self, by_topology: Mapping[str, Iterable[Candidate]]) -> Set[str]:
        """Return the voters of candidates that have a location in each of their topologies."""
        of_topologies = [
            set[str]().union(*(candidate.voters for candidate in own)) for own in by_topology.values()
        ]
        compared, members = set.intersection(*of_topologies), self._votes.members
        for uid in set.union(*of_topologies) - compared:
            if by_topology.keys() <= set(map(members.topology_of, members.paths(uid))):
                compared.add(uid)
        return compared

    def _is_part(self, domain: str) -> bool:
        """Return whether a domain has no parts, and is a part of a wider one."""
        members, parts = self._votes.members, parts_of(domain, self._votes)
        return not parts and members.size(members.parent(domain)) > members.size(domain)

    def _has_ended(self, candidate: Candidate) -> bool:
        """Return whether hardly any node still shows a fault that lasts and begins on all nodes at about the
        same time. One with a long window may begin on a node after it ended on another.
        """
        votes = self._votes.votes_by_class[candidate.fault_class]
        if not votes.vote_class.lasting or votes.longest_window > _SAME_TIME:
            return False
        active = self._votes.active_nodes(candidate.fault_class) & candidate.voters.keys()
        return len(active) < fewest_nodes(votes.vote_class.share, candidate.size)

    def _still_affected(
        self, votes: FaultVotes, leaves: Set[str], suppressed: Container[str]
    ) -> dict[str, Candidate]:
        """Return the leaves affected before, those in `leaves` only if enough nodes still show it."""
        before = self._affected[votes.vote_class.name]
        affected = {leaf: candidate for leaf, candidate in before.items() if leaf not in leaves}
        if not (votes.vote_class.lasting and before.keys() & leaves):
            return affected
        active = self._votes.active_nodes(votes.vote_class.name, suppressed)
        for leaf in sorted(before.keys() & leaves):
            candidate = before[leaf]
            least = self._votes.rule.fewest_affected(candidate.size, votes.vote_class.share)
            if len(active & candidate.voters.keys()) >= least:
                affected[leaf] = candidate
        return affected


def _clock_of(candidate: Candidate) -> tuple[str, str, bool]:
    """Return the key of the clock of a candidate."""
    return candidate.fault_class, candidate.domain, candidate.is_disputed
