"""The simple rule of the diagnosis, to compare others with: counts, shares, chance, and the widest domain.

A domain is degraded 15 s after enough of its nodes vote, by share and beyond chance; a parent, if half of its
children have such a share too. It suppresses no check, and knows no versions and no starts of jobs. The votes
are recorded, and domains recover, as in the product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf

from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.node_evidence import STOPPED_TOPOLOGIES, NodeEvidence
from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.topology.members import is_within
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.policy import Policy

# Seconds between two evaluations while a candidate waits, and while domains only have to recover.
_SOON, _LATER = 5.0, 60.0


class SimpleDiagnosis(Diagnosis):
    """Domains that are degraded by the simple rule."""

    def __init__(self, rule: DiagnosisPolicy, evidence: NodeEvidence) -> None:
        super().__init__(rule, evidence)
        # Since when each candidate is chosen, by class and domain.
        self._clocks: dict[tuple[str, str], float] = {}
        self._due = -inf

    def next_evaluation(self) -> float | None:
        """See Diagnosis."""
        return self._due if self._clocks or self.degraded_domains or self._due == -inf else None

    def evaluate(self, now: float) -> bool:
        """See Diagnosis."""
        self.voting.begin(now)
        due = self.next_evaluation()
        if not self.voting.has_changed and (due is None or now < due):
            return False
        before = dict(self.degraded_domains)
        self.voting.forget((), now)
        self.domains.follow_moves(now)
        chosen = [item for votes in self.voting.votes_by_class.values() for item in self._chosen(votes, now)]
        clocks, self._clocks = self._clocks, {}
        for candidate in chosen:
            # A wider candidate continues the clock of its part.
            key = name, domain = candidate.fault_class, candidate.domain
            parts = (at for (other, path), at in clocks.items() if other == name and is_within(path, domain))
            self._clocks[key] = min([now, *parts])
            if now - self._clocks[key] >= self.rule.grace_period:
                self.domains.begin(candidate, now)
        self.voting.has_changed = False
        self.voting.new_onsets.clear()
        self.domains.clear_recovered(now)
        self._due = now + (_SOON if self._clocks else _LATER)
        return before != self.degraded_domains

    def _chosen(self, votes: FaultVotes, now: float) -> list[Candidate]:
        """Return the domains that explain the votes of a class: those with the largest shares first."""
        leaves = {leaf for uid in votes.current_voters(now) for leaf in votes.lowest_domains(uid)}
        widest = {
            candidate.domain: candidate for leaf in leaves for candidate in self._climb(votes, leaf, now)
        }
        explained, chosen = set[str](), list[Candidate]()
        for candidate in sorted(
            widest.values(), key=lambda item: (-item.share, -len(item.voters), item.domain)
        ):
            if len(candidate.voters.keys() - explained) >= max(
                self.rule.min_nodes, len(candidate.voters) / 2
            ):
                explained |= candidate.voters.keys()
                chosen.append(candidate)
        return chosen

    def _climb(self, votes: FaultVotes, leaf: str, now: float) -> Iterator[Candidate]:
        """Yield the widest domain above a leaf that has enough votes, if the leaf has."""
        candidate, path = self._hit(votes, leaf, now), leaf
        while candidate is not None and (path := self.members.parent(path)):
            wider = self._hit(votes, path, now)
            if wider is None or not self._is_spread(votes, wider):
                break
            candidate = wider
        if candidate is not None:
            yield candidate

    def _hit(self, votes: FaultVotes, path: str, now: float) -> Candidate | None:
        """Return a domain with its votes if these are enough by share, and more than chance explains."""
        if self.members.topology_of(path) not in votes.location_topologies:
            return None
        tally = votes.tally(path, now)
        return tally if len(tally.voters) >= tally.required else None

    def _is_spread(self, votes: FaultVotes, candidate: Candidate) -> bool:
        """Return whether half of the children of a candidate, or both of two, have part of the votes."""
        children = self.members.children(candidate.domain)
        least = votes.vote_rules[self.members.topology_of(candidate.domain)].share / 2
        counts = [len(self.members.nodes(child) & candidate.voters.keys()) for child in children]
        sizes = map(self.members.size, children)
        having = sum(count >= max(1.0, least * size) for count, size in zip(counts, sizes, strict=True))
        return having >= max(2, len(children) / 2)


def simple_planner(policy: Policy, checks: Collection[str]) -> Planner:
    """Return a planner with the simple rule."""
    planner = Planner(policy, checks)
    votes = planner.vote_collector
    votes.diagnosis = SimpleDiagnosis(policy.diagnosis, votes.evidence)
    votes.diagnosis.voting.add_check(STALE_CHECK, STOPPED_TOPOLOGIES, warns=True)
    return planner
