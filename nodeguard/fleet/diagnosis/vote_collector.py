"""The votes for the diagnosis, collected from reports and stale agents. Pure.

A node does not vote under maintenance, with an operator's cordon, or before its first report.
"""

from __future__ import annotations

from collections.abc import Set
from math import inf

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.node_evidence import (
    STOPPED_TOPOLOGIES,
    NodeEvidence,
    is_kernel_confirmed,
)
from nodeguard.fleet.diagnosis.results import ALL_REPORTED
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.job import NodeJob
from nodeguard.wire.report import ReportedFinding

# Number of messages of a node since its boot from which it has certainly run for longer than ten minutes: an
# onset in the past ten minutes was observed then, and does not only seem recent after the agent's start.
_ESTABLISHED = 60

# Maximum age in seconds of a finding that votes as new in its first report.
_OLD = 900.0

# Maximum number of votes of one node at once, and seconds until it gets one more: no node fails so often for
# long, and each vote is remembered for a day.
MAX_VOTES, VOTE_INTERVAL = 512.0, 30.0

_Findings = tuple[ReportedFinding, ...]


class VoteCollector:
    """Collects votes for a diagnosis. domain_members: all nodes by domain, also those without votes."""

    def __init__(self, rule: DiagnosisPolicy, state: FleetState) -> None:
        self.evidence = NodeEvidence(state)
        self.domain_members = self.evidence.members
        self.jobs = state.jobs
        self.diagnosis = Diagnosis(rule, self.evidence)
        self.diagnosis.voting.add_check(STALE_CHECK, STOPPED_TOPOLOGIES, warns=True)
        self._state = state
        self._fires: dict[str, Set[str]] = {}
        self._findings: dict[str, _Findings] = {}  # of the latest report
        # From when to when operators last excluded a node.
        self._excluded: dict[str, tuple[float, float]] = {}
        self._returning: set[str] = set()  # nodes without a current report since their agents were stale
        self._votes: dict[str, tuple[float, float]] = {}
        self._jobs: dict[str, tuple[NodeJob, ...]] = {}

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Set another rule."""
        if replace(rule, enforce=()) != replace(self.diagnosis.rule, enforce=()):
            self.diagnosis.set_rule(rule)

    def update_node(self, uid: str) -> None:
        """Update a node: its placement, its report, or whether its agent is stale changed."""
        placement = self._state.placements.get(uid)
        if placement is None:
            self.diagnosis.voting.has_changed |= self.domain_members.remove(uid)
            self.diagnosis.voting.remove_node(uid)
            return
        paths = tuple(path.removeprefix(DOMAIN) for path in placement.domains)
        has_data = (
            uid in self._state.liveness.last_reports
            or self._is_marked(uid)
            or uid in self.evidence.stopped.missing
        )
        is_excluded = placement.cordoned_by_user or bool(placement.maintenance)
        self._update_exclusion(uid, is_excluded=is_excluded)
        report = self._state.reports.get(uid)
        versions = report.versions if report is not None else ()
        has_moved = self.domain_members.set_domains(uid, (*paths, *versions))
        self.diagnosis.voting.has_changed |= has_moved
        for finding in report.findings if report is not None else ():
            warns = finding.health == Health.WARNING
            self.diagnosis.voting.add_check(finding.check, finding.topologies, warns=warns)
        for fault in report.injections if report is not None else ():
            self.diagnosis.voting.add_check(fault.finding.check, fault.finding.topologies)
        voted = bool(self.diagnosis.members.paths(uid))
        received = self.evidence.received(report) if report is not None else {}
        self.diagnosis.voting.record_versions(uid, versions, received, self.evidence.observed_at.mono)
        self.diagnosis.voting.set_domains(uid, (*paths, *versions) if has_data and not is_excluded else ())
        if not self.diagnosis.members.paths(uid):
            self._fires.pop(uid, None)
        elif not voted:
            self._vote_for_all(uid)
        jobs = self._state.jobs.jobs(uid)
        if jobs != self._jobs.pop(uid, ()):
            self.diagnosis.voting.touch(uid)
        if jobs:
            self._jobs[uid] = jobs

    def _update_exclusion(self, uid: str, *, is_excluded: bool) -> None:
        """Update from when to when operators excluded a node."""
        now = self.evidence.observed_at.mono
        if is_excluded:
            # A node that is excluded when it is first seen may have been so for any time before this start.
            first = now if self.domain_members.paths(uid) else -inf
            if self._excluded.get(uid, (first, -inf))[1] < inf:
                self._excluded[uid] = first, inf
        elif uid in self._excluded:
            since, until = self._excluded[uid]
            self._excluded[uid] = since, min(until, now)

    def _is_marked(self, uid: str) -> bool:
        """Return whether a node has the mark of a degraded domain: it counts before its first report."""
        domains = self.diagnosis.degraded_domains.values()
        marks = self._state.marks.observed(uid).records.node.degraded
        return any(degraded.has_mark(mark) for mark in marks for degraded in domains)

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.update_node(uid)
        self._fires.pop(uid, None)
        self._findings.pop(uid, None)
        self._excluded.pop(uid, None)
        self._returning.discard(uid)
        self._votes.pop(uid, None)
        self._jobs.pop(uid, None)

    def record_report(self, uid: str, now: Instant) -> None:
        """Record a node's report, with the checks that fire on it now."""
        self.evidence.observed_at = now
        report = self._state.reports.get(uid)
        if uid in self.evidence.stopped.stale:
            self._returning.add(uid)
        if report is None or report.late:
            return
        was_silent = uid in self._returning
        self._returning.discard(uid)
        if uid not in self._findings and now.mono - self.diagnosis.voting.began > ALL_REPORTED:
            self.diagnosis.voting.late.add(uid)
        before_findings, self._findings[uid] = self._findings.get(uid, ()), report.findings
        self.update_node(uid)
        reported = {finding.check for finding in report.findings}
        for check in {finding.check for finding in before_findings} - reported:
            self.diagnosis.record_cleared(uid, check)
        for check in reported:
            self.diagnosis.checks.confine(uid, check, self.evidence.onset(report, check))
        if not self.diagnosis.members.paths(uid):
            return
        before = self._fires.get(uid)
        if before is None:
            self._vote_for_all(uid)
            return
        # A finding that is not fresh has not ended, and is not new when it is fresh again.
        fires = self._firing(report)
        self._fires[uid] = fires.keys() | (before & reported)
        for check in fires.keys() - before:
            topologies, age = fires[check]
            # The jobs that started in a silence are unknown: the start of one may have caused the event.
            may_be_of_job = was_silent and self.diagnosis.voting.is_past_event(check)
            if may_be_of_job or self._is_recovery(uid, check, before_findings, report.findings):
                self.diagnosis.voting.record_active(uid, check)
            else:
                self._vote(uid, check, topologies, age, is_new=age <= _OLD)
        self._record_kernel_confirmations(uid, report)

    def _is_recovery(self, uid: str, check: str, previous: _Findings, current: _Findings) -> bool:
        """Return whether all findings of a new check only remain after worse ones that have ended.

        A check is hidden while it is a symptom of another: `port-link-downed` appears when `port-down` ends.
        A check that appears beside the worse one was not hidden. A suppressed check hides none: the false
        alarm may go on in the other. previous, current: findings of the node's two latest reports.
        """
        checks, has_fault_class = self.diagnosis.checks, self.diagnosis.has_fault_class
        classes = self.diagnosis.voting.classes_of(check)
        ended = [
            (worse.health.rank, _ended(worse, current))
            for worse in previous
            if has_fault_class(worse.check, classes) and checks.suppression(worse.check, uid) is None
        ]
        return all(
            any(
                rank > finding.health.rank and not targets.isdisjoint(_targets(finding))
                for rank, targets in ended
            )
            for finding in current
            if finding.check == check
        )

    def _record_kernel_confirmations(self, uid: str, report: LatestReport) -> None:
        """Record on which findings the kernel log and another source agree."""
        for finding in report.findings:
            if finding.data_status == DataStatus.FRESH and is_kernel_confirmed(finding):
                self.diagnosis.voting.firings_of(finding.check).record_kernel_confirmation(uid)

    def _firing(self, report: LatestReport) -> dict[str, tuple[tuple[str, ...], float]]:
        """Return the checks that fire with fresh data, with their topologies and their age in seconds."""
        firing: dict[str, tuple[tuple[str, ...], float]] = {}
        for finding, began in zip(report.findings, report.began, strict=True):
            if finding.data_status == DataStatus.FRESH:
                age = max(0.0, self.evidence.observed_at.wall - began)
                firing[finding.check] = finding.topologies, max(age, firing.get(finding.check, ((), 0.0))[1])
        return firing

    def _vote_for_all(self, uid: str) -> None:
        """Vote for findings from before the first report, with their onset."""
        report = self._state.reports.get(uid)
        if report is None or report.late:
            return
        fires = self._firing(report)
        for check, (topologies, age) in fires.items():
            self._vote(uid, check, topologies, age)
        self._fires[uid] = frozenset(fires)
        self._record_kernel_confirmations(uid, report)

    def _vote(
        self, uid: str, check: str, topologies: tuple[str, ...], age: float, *, is_new: bool = False
    ) -> None:
        """Have a node vote, unless it has voted too often. If the check began to fire while operators
        excluded the node, the cause may be their work: the node votes only for a version that it received
        shortly before. age: seconds since it began to fire; is_new: whether the vote is from now.
        """
        now = self.evidence.observed_at.mono
        since, until = self._excluded.get(uid, (inf, inf))
        if since <= now - age <= until:
            topologies = tuple(self.diagnosis.voting.received_before(uid, now - age).intersection(topologies))
            if not topologies:
                self.diagnosis.voting.record_active(uid, check)
                return
        left, at = self._votes.get(uid, (MAX_VOTES, now))
        left = min(MAX_VOTES, left + max(0.0, now - at) / VOTE_INTERVAL)
        if left >= 1.0:
            left -= 1.0
            report = self._state.reports.get(uid)
            observed = report is None or report.sequence >= _ESTABLISHED
            onset = now if is_new else now - age
            self.diagnosis.vote(uid, check, topologies, onset, observed=observed)
        self._votes[uid] = left, now

    def update_stale(self, stale: Set[str], now: Instant) -> None:
        """Set the nodes with stale agents. An agent that announced its end does not vote for that."""
        self.evidence.observed_at = now
        stopped = self.evidence.stopped
        changes = stopped.update(stale, now)
        for uid in changes.missing:
            self.update_node(uid)
        for uid in changes.began:
            self.diagnosis.vote(uid, STALE_CHECK, STOPPED_TOPOLOGIES, stopped.since[uid])
        for uid in changes.ended:
            self.diagnosis.record_cleared(uid, STALE_CHECK)

    def symptom(self, uid: str, fault_classes: tuple[str, ...]) -> Symptom | None:
        """Return the symptom of a node for some fault classes, any if empty; None if it has none."""
        placement, report = self._state.placements.get(uid), self._state.reports.get(uid)
        if placement is None or (report is None and not self.evidence.stopped.was_recorded(uid)):
            return None
        for finding in report.findings if report is not None else ():
            if not fault_classes or self.diagnosis.has_fault_class(finding.check, fault_classes):
                return Symptom(
                    finding.check, f"{placement.name}, {finding.target}", finding.health, finding.message
                )
        is_stale = uid in self.evidence.stopped.stale
        return Symptom(STALE_CHECK, placement.name, Health.WARNING) if is_stale else None


def _ended(finding: ReportedFinding, current: _Findings) -> Set[str]:
    """Return the targets on which a finding is no longer reported."""
    remaining = (other for other in current if other.check == finding.check)
    return _targets(finding).difference(*map(_targets, remaining))


def _targets(finding: ReportedFinding) -> frozenset[str]:
    return frozenset((finding.target, *finding.targets))
