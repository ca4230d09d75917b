"""The diagnosis: from what single nodes show to the shared part that is to blame, or to the check that is not
to be believed. Pure: it is told of votes, and of the time.

The rule and the reasons for its constants stand in docs/concepts/failure-domains.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from nodeguard.fleet.diagnosis.degraded_domains import SOON, DegradedDomains
from nodeguard.fleet.diagnosis.recurrence import Recurrence
from nodeguard.fleet.diagnosis.results import DegradedDomain, SuppressedCheck
from nodeguard.fleet.diagnosis.rollout import new_version
from nodeguard.fleet.diagnosis.suppressed_checks import SuppressedChecks
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES, DiagnosisPolicy

# Seconds between two looks while something is only waited for to end, and no more than this part of the time
# that it takes.
_LATER = 60.0
_PART = 0.1


class Diagnosis:
    """What is known of what the nodes of a fleet share, and of who showed what.

    second: whether another source bears out what a check found on a node.
    """

    def __init__(self, rule: DiagnosisPolicy, second: Callable[[str, str], bool]) -> None:
        past = self._past = Recurrence(rule)
        self.rule = rule
        self.voting = VoteIndex(rule)
        self._blaming = DegradedDomains(rule, self.voting, past)
        self._holds = SuppressedChecks(rule, self.voting, past, second)
        self._looked: float | None = None

    @property
    def members(self) -> DomainMembers:
        """The nodes that may vote, with their domains."""
        return self.voting.members

    @property
    def degraded_domains(self) -> Mapping[str, DegradedDomain]:
        """What is to blame, by domain."""
        return self._blaming.degraded

    @property
    def suppressed_checks(self) -> Mapping[str, SuppressedCheck]:
        """What is not to be believed, by check."""
        return self._holds.suppressed

    def set_domains(self, uid: str, paths: Iterable[str], now: float) -> None:
        """A node that may vote, with its domains; without any, it may not."""
        self.voting.set_domains(uid, paths, now)

    def remove_node(self, uid: str, now: float) -> None:
        """A node that is no more."""
        self.voting.remove_node(uid, now)

    def vote(self, uid: str, check: str, views: Iterable[str], at: float) -> None:
        """A check fires on a node where it did not, which may be told of in some views."""
        if self.voting.record_firing(uid, check, at) and not self.suppression(check, uid):
            self.voting.vote(uid, check, tuple(views), at)

    def record_cleared(self, uid: str, check: str) -> None:
        """It does not fire there any more."""
        self.voting.record_cleared(uid, check)

    def suppression(self, check: str, uid: str) -> SuppressedCheck | None:
        """Why nothing is done for a check on a node; None where something may be."""
        return self._holds.suppression(check, uid)

    def is_suspected(self, check: str) -> bool:
        """Whether a check fires on more nodes than anything explains, and may be held for that soon."""
        return check in self._holds.suspected

    def has_fault_class(self, check: str, kinds: Iterable[str]) -> bool:
        """Whether a check has voted in one of some classes of faults."""
        return not self.voting.classes_of(check).keys().isdisjoint(kinds)

    def take_over(self, other: Diagnosis) -> None:
        """Go on with what another diagnosis blames and holds, and has learnt of how often that was."""
        self._blaming.take_over(other._blaming)
        self._holds.take_over(other._holds)
        self._past.take_over(other._past)
        self.voting.began = other.voting.began

    def restore_domain(self, domain: str, name: str, kinds: Iterable[str], began: float, now: float) -> None:
        """A domain that was blamed before this diagnosis began. Nothing of its votes is known."""
        self._blaming.restore(domain, name, kinds, began, now)

    def restore_suppression(self, check: str, domain: str, now: float) -> None:
        """A check that was held before this diagnosis began; domain: the version on which it was alone."""
        self._holds.restore(check, domain, now)

    def clear(self, what: str, now: float) -> None:
        """A domain or a check that is in order, on somebody's word."""
        self._blaming.clear(what, now)
        self._holds.clear(what, now)

    def next_evaluation(self) -> float | None:
        """When to look again though nothing was told: seconds of the clock; None for not at all."""
        undecided = self._blaming.clocks or self._holds.suspected
        if not (undecided or self.degraded_domains or self.suppressed_checks):
            return None
        if self._looked is None:
            return -inf
        return self._looked + (SOON if undecided else min(_LATER, self.rule.clear * _PART))

    def evaluate(self, now: float) -> bool:
        """Look at what is known. now: seconds of the clock. Returns whether what is said has changed."""
        self.voting.begin(now)
        due = self.next_evaluation()
        if not self.voting.changed_checks and (due is None or now < due):
            return False
        said = dict(self.degraded_domains), dict(self.suppressed_checks)
        self.voting.forget(self.suppressed_checks, now)
        candidates = self._blaming.choose(self.suppressed_checks, now)
        self._holds.update_suspected(candidates, self._blaming.explained, now)
        self._holds.suppress_settled(now)
        for one in list(self._blaming.settled_candidates(candidates, now)):
            checks = list(self.voting.checks_of(one.fault_class, one.voters))
            # While it is not sure whether to believe a check, nothing is blamed for it.
            if any(self.is_suspected(check) or check in self.suppressed_checks for check in checks):
                continue
            version = one.domain if self.members.topology_of(one.domain) in VERSION_TOPOLOGIES else ""
            version = version or new_version(self.members, one, self.voting.version_changes, now)
            if not version:
                self._blaming.begin(one, now)
                continue
            self._blaming.drop(one)
            for check in checks:
                self._holds.suppress(check, one.voters, one.window, version, now)
        self._blaming.clear_recovered(now)
        self._holds.clear_recovered(now)
        self.voting.changed_checks.clear()
        self._looked = now
        return said != (self.degraded_domains, self.suppressed_checks)
