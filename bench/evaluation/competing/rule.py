"""The diagnosis by competing explanations: what the product records, restores and recovers, with other
decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set

from bench.evaluation.competing.candidates import CompetingCandidates
from bench.evaluation.competing.explanations import MISLABELLED, Candidate
from bench.evaluation.competing.false_alarms import suspicions
from nodeguard.fleet.diagnosis.check_firings import UnexplainedFirings
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.node_evidence import STOPPED_TOPOLOGIES, NodeEvidence
from nodeguard.fleet.diagnosis.results import Candidate as DomainCandidate
from nodeguard.fleet.diagnosis.suppressed_checks import SuppressedChecks
from nodeguard.fleet.diagnosis.suspected_checks import are_everywhere
from nodeguard.fleet.planner import Planner
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.policy import Policy

# Seconds between the votes for one fault, of which agents report with different delays.
_AT_ONCE = 60.0


class CompetingChecks(SuppressedChecks):
    """The suppressed checks. possible: see CompetingCandidates. doubted: checks of which a false alarm may
    explain the votes for domains, too.
    """

    possible: Mapping[str, tuple[Candidate, ...]] = {}
    doubted: frozenset[str] = frozenset()

    def is_suspected(self, check: str, uid: str) -> bool:
        """See SuppressedChecks."""
        is_doubted = check in self.suspected or check in self.doubted
        return is_doubted and not self._is_kernel_confirmed(check, uid)

    def update_suspected(
        self, candidates: Collection[DomainCandidate], explained: Callable[[str], Set[str]], now: float
    ) -> None:
        """See SuppressedChecks. A doubted check is evaluated again, as a suspected one."""
        self._votes.changed_checks.update(self.doubted)
        super().update_suspected(candidates, explained, now)

    def _find_suspected(
        self,
        checks: Collection[str],
        candidates: Collection[DomainCandidate],
        explained: Callable[[str], Set[str]],
        now: float,
    ) -> dict[str, UnexplainedFirings]:
        own = [candidate for candidate in candidates if isinstance(candidate, Candidate)]
        found = suspicions(checks, self._votes, own, self.possible, explained, self._votes.rule, now)
        self.doubted = frozenset(check for check, suspicion in found.items() if suspicion.doubts)
        return {check: item.firings for check, item in found.items() if item.firings is not None}


class CompetingDiagnosis(Diagnosis):
    """Degraded domains and suppressed checks by competing explanations."""

    def __init__(self, rule: DiagnosisPolicy, evidence: NodeEvidence) -> None:
        super().__init__(rule, evidence)
        self._competing = CompetingCandidates(self.voting, self.domains)
        self._candidates = self._competing
        self._doubting = CompetingChecks(self.voting, self._recurrence, evidence)
        self.checks = self._doubting
        self.suppressed_checks = self.checks.suppressed

    def next_evaluation(self) -> float | None:
        """See Diagnosis."""
        if self._doubting.doubted:
            return self._evaluated + _SOON
        return super().next_evaluation()

    def _explained(self, fault_class: str) -> set[str]:
        self._doubting.possible = self._competing.possible
        return super()._explained(fault_class) | self._mislabelled(fault_class)

    def _mislabelled(self, fault_class: str) -> set[str]:
        """Return nodes outside of the domains that are degraded for a fault class that showed the fault with
        one of them, if they are few: their labels may be wrong.
        """
        votes = self.voting.votes_by_class[fault_class]
        degraded = [
            item
            for item in self.degraded_domains.values()
            if fault_class in item.fault_classes and not item.restored
        ]
        if not degraded:
            return set()
        inside = self.domains.explained(fault_class)
        times = [
            (item.began - _AT_ONCE, item.began + max(item.within + _AT_ONCE, votes.longest_window))
            for item in degraded
        ]
        latest: dict[str, float] = {}
        for topology in votes.vote_rules:
            for root in self.members.children(topology):
                latest |= votes.latest_votes(root)
        others = {
            uid
            for uid, at in latest.items()
            if uid not in inside and any(first <= at <= last for first, last in times)
        }
        faulty = sum(len(item.voters) for item in degraded)
        return others if len(others) <= MISLABELLED * faulty else set()

    def _diagnose(self, candidates: Collection[DomainCandidate], suppressed: Set[str], now: float) -> None:
        """See Diagnosis. While a false alarm may explain the votes, no domain is degraded for them."""
        doubted = set(self._doubting.doubted)
        for candidate in list(self._candidates.settled_candidates(candidates, now)):
            checks = list(self.voting.checks_of(candidate.fault_class, candidate.voters))
            own = [other for other in candidates if other.fault_class == candidate.fault_class]
            if not doubted.isdisjoint(checks) or (
                self._is_of_suppressed(candidate, suppressed) and are_everywhere(own, self.members)
            ):
                continue
            doubted |= self._begin(candidate, checks, now)
        self.checks.suppress_settled(now)


_SOON = 5.0


def competing_planner(policy: Policy, checks: Iterable[str]) -> Planner:
    """Return a planner with this rule."""
    planner = Planner(policy, checks)
    collector = planner.vote_collector
    collector.diagnosis = CompetingDiagnosis(policy.diagnosis, collector.evidence)
    collector.diagnosis.voting.add_check(STALE_CHECK, STOPPED_TOPOLOGIES, warns=True)
    return planner
