"""Domain marks that only the record on their own Node supports. Pure.

An aggregator that was killed before it wrote the incident of a domain, or that lost all incidents, finds such
marks. So does one that reads a record that a kubelet wrote. They stay on their own Node until its agent
proves that the fault is over, and change nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set

from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.decide.restored_diagnosis import RestoredDiagnosis
from nodeguard.fleet.diagnosis.vote_collector import VoteCollector
from nodeguard.judge.formatting import format_duration
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark


class DomainClaims:
    """Decides which of these marks stay. messages: what each of them waits for, by uid and domain."""

    def __init__(self, votes: VoteCollector, restored: RestoredDiagnosis) -> None:
        self.messages: dict[tuple[str, str], str] = {}
        self._votes = votes
        self._restored = restored
        # Since when each node has shown no fault of its mark, in seconds of the monotonic clock.
        self._passing: dict[tuple[str, str], float] = {}

    def kept_marks(
        self,
        records: Iterable[tuple[str, DegradedMark]],
        decisions: Collection[DomainDecision],
        nodes: Mapping[str, Set[str]],
        now: Instant,
    ) -> list[tuple[str, DegradedMark]]:
        """Return the marks that stay though no decision grants them. records: those that are not granted, by
        uid. nodes: uids of each degraded domain.
        """
        before, self._passing, self.messages = self._passing, {}, {}
        wait = self._votes.diagnosis.rule.recovery.initial
        marks = []
        for uid, mark in records:
            decision = next((item for item in decisions if item.degraded.has_mark(mark)), None)
            if decision is not None and uid in nodes[decision.degraded.domain]:
                # The marks of a domain stay while a budget withholds those that replace them.
                marks += [(uid, mark)] if decision.mark is None else []
                continue
            if self._restored.is_over(mark):
                continue
            key, since = (uid, mark.domain), now.mono
            if self._is_passing(uid, mark):
                since = self._passing[key] = before.get(key, now.mono)
            if now.mono - since < wait:
                self.messages[key] = _MESSAGE.format(mark.domain, format_duration(wait))
                marks.append((uid, mark))
        return marks

    def _is_passing(self, uid: str, mark: DegradedMark) -> bool:
        """Return whether a current report shows no fault of the classes of a mark; of any class, if none of
        them exists.
        """
        if not self._votes.evidence.has_current_report(uid):
            return False
        diagnosis, checks = self._votes.diagnosis, self._votes.evidence.shown_checks(uid)
        classes = diagnosis.voting.votes_by_class.keys() & set(mark.fault_classes)
        return not (any(diagnosis.has_fault_class(check, classes) for check in checks) if classes else checks)


_MESSAGE = "the node's agent to report no fault of {} for {}; no incident shows that this domain is degraded"
