"""The diagnosis: from the findings of single nodes to a degraded domain, or to a suppressed check. Pure.

docs/concepts/how-the-diagnosis-works.md has the rule and the reasons for its constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from math import inf

from nodeguard.fleet.diagnosis.degraded_domains import DegradedDomains
from nodeguard.fleet.diagnosis.doubtful_domains import doubtful_domains
from nodeguard.fleet.diagnosis.job_starts import JobStarts
from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence
from nodeguard.fleet.diagnosis.results import (
    JOB,
    BadJobStart,
    Candidate,
    DegradedDomain,
    SuppressedCheck,
)
from nodeguard.fleet.diagnosis.settling_candidates import SettlingCandidates
from nodeguard.fleet.diagnosis.shared_versions import explaining_version
from nodeguard.fleet.diagnosis.suppressed_checks import SuppressedChecks
from nodeguard.fleet.diagnosis.suspected_checks import are_everywhere
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.model.diagnosis import DiagnosisPolicy

# Seconds between two evaluations while a domain or check only has to recover, and otherwise. New votes are
# evaluated at once: then all other candidates, and the recoveries, wait for the time of the next evaluation.
_LATER, _SOON = 60.0, 5.0


class Diagnosis:
    """The degraded domains, suppressed checks and bad starts of jobs of a fleet, and the votes for them.
    evidence: answers questions about nodes. domains, checks, jobs: the three kinds of diagnoses.
    degraded_domains, suppressed_checks, bad_starts: by domain, by check and by job.
    members: the nodes that may vote, with their domains.
    """

    def __init__(self, rule: DiagnosisPolicy, evidence: NodeEvidence) -> None:
        self.rule = rule
        self.voting = VoteIndex(rule)
        self.domains = DegradedDomains(self.voting, evidence)
        self._candidates = SettlingCandidates(self.voting, self.domains)
        self.checks = SuppressedChecks(self.voting, evidence)
        self.jobs = JobStarts(self.voting, evidence)
        self.members = self.voting.members
        self.degraded_domains: Mapping[str, DegradedDomain] = self.domains.degraded
        self.suppressed_checks: Mapping[str, SuppressedCheck] = self.checks.suppressed
        self.bad_starts: Mapping[str, BadJobStart] = self.jobs.bad_starts
        self._evaluated = self._evaluated_all = -inf

    def vote(
        self, uid: str, check: str, topologies: Iterable[str], at: float, *, observed: bool = True
    ) -> None:
        """Record that a check begins to fire on a node, with a fault that some topologies may share. at: the
        onset, long ago in the first report of a node.

        observed: whether the agent observed the onset; an agent that has just started sees old faults begin.
        """
        if self.checks.confine(uid, check, at):
            self.voting.record_active(uid, check)
            return
        if self.voting.record_firing(uid, check, at, observed=observed) and not self.checks.suppression(
            check, uid
        ):
            self.voting.vote(uid, check, at, topologies)

    def record_cleared(self, uid: str, check: str) -> None:
        """Record that a check does not fire on a node any more."""
        self.voting.record_cleared(uid, check)
        self.checks.record_cleared(uid, check)

    def has_fault_class(self, check: str, fault_classes: Iterable[str]) -> bool:
        """Return whether a check may vote in one of some fault classes, as far as a report names it."""
        return not self.voting.classes_of(check).keys().isdisjoint(fault_classes)

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Set another rule: the latest onsets vote by it. Degraded domains and suppressed checks stay."""
        self.rule = rule
        self.voting.set_rule(rule)
        self.domains.use_present_classes()
        firings = self.voting.firings.items()
        for at, uid, check in sorted(
            (at, uid, check) for check, own in firings for uid, at in own.latest.items()
        ):
            if self.checks.suppression(check, uid) is None:
                self.voting.vote(uid, check, at)
        self._evaluated_all = -inf

    def open(self, result: DegradedDomain | SuppressedCheck | BadJobStart) -> None:
        """Record a diagnosis that an earlier aggregator made, in the same way as one that this one makes."""
        match result:
            case DegradedDomain():
                self.domains.open(result)
            case SuppressedCheck():
                self.checks.open(result)
            case BadJobStart():
                self.jobs.open(result)

    def end(self, result: DegradedDomain | SuppressedCheck | BadJobStart, at: float) -> None:
        """Record that a diagnosis, also of an earlier aggregator, ended: votes until then do not count."""
        match result:
            case DegradedDomain():
                self.domains.end(result, at)
                self._candidates.forget(result)
            case SuppressedCheck():
                self.checks.end(result, at)
            case BadJobStart():
                self.jobs.end(result, at)

    def clear(self, cause: str, now: float) -> None:
        """Clear a domain, a check, or the bad start of a job (`job/NAME`) on an operator's request."""
        job = self.bad_starts.get(cause.removeprefix(JOB)) if cause.startswith(JOB) else None
        for result in (self.degraded_domains.get(cause), self.suppressed_checks.get(cause), job):
            if result is not None:
                self.end(result, now)

    @property
    def explaining(self) -> tuple[object, ...]:
        """Return a value that changes if domains or checks explain other findings of nodes than before: more
        votes for a domain do not change it.
        """
        domains = [
            (item.name, item.domain, item.fault_classes, item.began, item.restored, item.moved)
            for item in self.degraded_domains.values()
        ]
        checks = [
            (item.check, item.domain, item.since, item.confined_at)
            for item in self.suppressed_checks.values()
        ]
        return domains, checks

    def next_evaluation(self) -> float | None:
        """Return when to evaluate without new votes, in seconds of the clock; None for never."""
        undecided = self._candidates.clocks or self.checks.suspected or self.jobs.is_undecided
        if not (undecided or self.degraded_domains or self.suppressed_checks or self.bad_starts):
            return None
        return self._evaluated + (_SOON if undecided else _LATER)

    def evaluate(self, now: float) -> bool:
        """Evaluate the votes. now: seconds of the clock. Returns whether a degraded domain or a suppressed
        check has changed.
        """
        self.voting.begin(now)
        due = self.next_evaluation()
        if not self.voting.has_changed and (due is None or now < due):
            return False
        before = dict(self.degraded_domains), dict(self.suppressed_checks)
        self.voting.forget(self.suppressed_checks, now)
        self.domains.follow_moves(now)
        self.checks.follow_moves()
        if self.jobs.update(self.degraded_domains.values(), now):
            self._evaluated_all = -inf
            self._clear_explained(now)
        self.checks.vote_for_leaves(now)
        is_full = now >= self._evaluated_all + _SOON
        suppressed = {check for check, item in self.suppressed_checks.items() if not item.recovered}
        candidates = self._candidates.choose(suppressed, now, only_new=not is_full)
        self.checks.update_suspected(candidates, self.degraded_domains.values(), self._explained, now)
        self.voting.has_changed = False
        self.voting.new_onsets.clear()
        self._diagnose(candidates, suppressed, now)
        if is_full:
            self._evaluated_all = now
            for recovered in self.domains.clear_recovered(now):
                self._candidates.forget(recovered)
            self.checks.clear_recovered(now)
        self.checks.update_retractions()
        if before[1] != self.suppressed_checks:
            self._evaluated_all = -inf
        self._evaluated = now
        return before != (self.degraded_domains, self.suppressed_checks)

    def _explained(self, fault_class: str) -> set[str]:
        """Return the nodes of which a degraded domain or the start of a job explains the votes."""
        return self.domains.explained(fault_class).union(self.jobs.explained(fault_class))

    def _diagnose(self, candidates: Collection[Candidate], suppressed: Set[str], now: float) -> None:
        """Suppress the checks that have been suspected for long enough, in place of the degraded domains that
        they explain. Then begin the diagnosis of settled candidates: as a degraded domain, or as checks that
        are suppressed on a version. suppressed: checks that were so before.
        """
        doubted = set(self.checks.suspected)
        self.checks.suppress_settled(now)
        self._withdraw_doubtful()
        for candidate in list(self._candidates.settled_candidates(candidates, now)):
            checks = list(self.voting.checks_of(candidate.fault_class, candidate.voters))
            # While a check is suspected, no domain becomes degraded for it. Once it is suppressed, its votes
            # are withdrawn: those of the other checks of its class, and of single leaves, decide.
            if not doubted.isdisjoint(checks):
                continue
            own = [other for other in candidates if other.fault_class == candidate.fault_class]
            if self._is_of_suppressed(candidate, suppressed) and are_everywhere(own, self.members):
                continue
            doubted |= self._begin(candidate, checks, now)

    def _withdraw_doubtful(self) -> None:
        """Remove the degraded domains that are explained by a false alarm that was found later."""
        for check, suppressed in self.suppressed_checks.items():
            if suppressed.recovered or suppressed.confirmed:
                continue
            earlier = [item for item in self.degraded_domains.values() if item.since < suppressed.since]
            for candidate in doubtful_domains(check, earlier, self.voting):
                self._candidates.forget(self.domains.withdraw(candidate.domain))

    def _begin(self, candidate: Candidate, checks: Iterable[str], now: float) -> set[str]:
        """Begin the diagnosis of a candidate with votes for some checks. Returns those that it suppresses."""
        self._candidates.drop(candidate)
        version = explaining_version(self.voting, candidate, now)
        if not version:
            self.domains.begin(candidate, now)
            return set()
        suppressed = set[str]()
        for check in checks:
            is_new = any(self.checks.suppression(check, uid) is None for uid in candidate.voters)
            if is_new and self.checks.may_be_false(check, candidate.voters, now):
                self.checks.suppress(check, candidate.voters, candidate.window, version, now)
                suppressed.add(check)
        return suppressed

    def _is_of_suppressed(self, candidate: Candidate, suppressed: Set[str]) -> bool:
        """Return whether nearly all votes of a candidate are for suppressed checks."""
        checks = set(self.voting.checks_of(candidate.fault_class, candidate.voters))
        if checks.isdisjoint(suppressed):
            return False
        others = set[str]()
        for check in checks - suppressed:
            onsets = self.voting.firings[check].latest
            others |= {uid for uid, at in candidate.voters.items() if onsets.get(uid) == at}
        return len(others) < self.rule.min_nodes

    def _clear_explained(self, now: float) -> None:
        """Clear domains that became degraded before the job that explains their votes was known."""
        for degraded in list(self.degraded_domains.values()):
            explained = set[str]().union(*map(self.jobs.explained, degraded.fault_classes))
            unexplained = set(degraded.voters) - explained
            if not degraded.restored and explained and len(unexplained) < self.rule.min_nodes:
                self.end(degraded, now)
