"""The votes for the diagnosis, collected from reports and stale agents. Pure.

A node does not vote under maintenance, with an operator's cordon, or before its first report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from math import inf

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.job_starts import JobStart
from nodeguard.fleet.diagnosis.missing_agents import MissingAgents
from nodeguard.fleet.diagnosis.node_versions import version_domains
from nodeguard.fleet.diagnosis.recoveries import is_recovery
from nodeguard.fleet.diagnosis.results import ALL_REPORTED
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_jobs import NodeJobs
from nodeguard.fleet.state.node_placement import DOMAIN
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.job import NodeJob
from nodeguard.wire.report import ReportedFinding


def is_kernel_confirmed(finding: ReportedFinding) -> bool:
    """Return whether the kernel log and another source agree in a finding: the log has a line about the
    fault, and a reading shows it too. Two readings may be the two parts of one condition.
    """
    sources = {evidence.source for evidence in finding.evidence} - {_DERIVED}
    return _KERNEL_LOG in sources and len(sources) > 1


# The topologies in which a node with a stale agent votes.
_OF_SILENCE = ("power", "fabric")

# Number of messages of a node since its boot from which it has certainly run for longer than ten minutes: an
# onset in the past ten minutes was observed then, and does not only seem recent after the agent's start.
_ESTABLISHED = 60

# Maximum age in seconds of a finding that votes as new in its first report.
_OLD = 900.0

# Seconds within which the findings of two checks belong together.
_TOGETHER = 600.0

# The kernel log: a driver writes to it, whatever a check does. Derived signals repeat other sources.
_KERNEL_LOG, _DERIVED = "kmsg", "derived"

# Maximum number of votes of one node at once, and seconds until it gets one more: no node fails so often for
# long, and each vote is remembered for a day.
MAX_VOTES, VOTE_INTERVAL = 512.0, 30.0


class VoteCollector:
    """Collects votes. diagnosis: receives them. domain_members: all nodes by domain, also those without
    votes.
    """

    def __init__(self, rule: DiagnosisPolicy, state: FleetState) -> None:
        self.domain_members = DomainMembers()
        self.diagnosis = self._new_diagnosis(rule)
        self._state = state
        self._fires: dict[str, Set[str]] = {}
        self._findings: dict[str, tuple[ReportedFinding, ...]] = {}  # of the latest report
        self._excluded: dict[str, float] = {}  # when operators excluded a node
        self._stale: Set[str] = frozenset()
        self._silent_before: set[str] = set()  # names of nodes with stale agents in recorded incidents
        self._missing = MissingAgents(state)
        self._votes: dict[str, tuple[float, float]] = {}
        self._jobs: dict[str, tuple[NodeJob, ...]] = {}
        self._now = Instant(0.0, 0.0, "")

    @property
    def jobs(self) -> NodeJobs:
        """Return the jobs of the nodes."""
        return self._state.jobs

    def _new_diagnosis(self, rule: DiagnosisPolicy) -> Diagnosis:
        diagnosis = Diagnosis(
            rule,
            self.is_confirmed,
            self.shown_faults,
            self.nodes_showing,
            self.domain_members.nodes,
            self.job_starts,
        )
        diagnosis.voting.add_check(STALE_CHECK, _OF_SILENCE, warns=True)
        return diagnosis

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Set another rule: the diagnosis starts again; degraded domains and suppressed checks stay until
        cleared.
        """
        before = self.diagnosis
        if replace(rule, enforce=()) == replace(before.rule, enforce=()):
            return
        self.diagnosis = self._new_diagnosis(rule)
        self.diagnosis.take_over(before)
        self._fires.clear()
        self._stale = frozenset()

    def update_node(self, uid: str) -> None:
        """Update a node with another placement."""
        placement = self._state.placements.get(uid)
        if placement is None:
            self.domain_members.remove(uid)
            self.diagnosis.remove_node(uid, self._now.mono)
            return
        paths = tuple(path.removeprefix(DOMAIN) for path in placement.domains)
        has_data = uid in self._state.liveness.last_reports or self._is_marked(uid) or uid in self._missing
        is_excluded = placement.cordoned_by_user or bool(placement.maintenance)
        if is_excluded:
            self._excluded.setdefault(uid, self._now.mono)
        votes = has_data and not is_excluded
        report = self._state.reports.get(uid)
        versions = version_domains(report) if report is not None else ()
        self.domain_members.set_domains(uid, (*paths, *versions))
        for finding in report.findings if report is not None else ():
            warns = finding.health == Health.WARNING
            self.diagnosis.voting.add_check(finding.check, finding.topologies, warns=warns)
        for fault in report.injections if report is not None else ():
            self.diagnosis.voting.add_classes(fault.finding.check, fault.finding.topologies)
        voted = bool(self.diagnosis.members.paths(uid))
        self.diagnosis.set_domains(uid, (*paths, *versions) if votes else (), self._now.mono)
        if not self.diagnosis.members.paths(uid):
            self._fires.pop(uid, None)
        elif not voted:
            self._vote_for_all(uid)
        if not is_excluded:
            self._excluded.pop(uid, None)
        self._update_jobs(uid)

    def _update_jobs(self, uid: str) -> None:
        before, jobs = self._jobs.pop(uid, ()), self._state.jobs.jobs(uid)
        if jobs:
            self._jobs[uid] = jobs
        if jobs != before:
            self.diagnosis.voting.record_jobs(uid)

    def job_starts(self, uid: str) -> Iterator[JobStart]:
        """Yield the starts of jobs on a node, in seconds of the monotonic clock."""
        for job in self._state.jobs.jobs(uid):
            for at in job.starts:
                yield JobStart(job.name, self._now.mono_of(at))

    def _is_marked(self, uid: str) -> bool:
        """Return whether a node carries the mark of a domain: then it counts before its first report."""
        return bool(self._state.observed_marks(uid).node.degraded)

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.update_node(uid)
        self._fires.pop(uid, None)
        self._findings.pop(uid, None)
        self._excluded.pop(uid, None)
        self._missing.remove_node(uid)
        self._votes.pop(uid, None)
        self._jobs.pop(uid, None)

    def record_report(self, uid: str, now: Instant) -> None:
        """Record a node's report, with the checks that fire on it now."""
        self._now = now
        report = self._state.reports.get(uid)
        if report is None or report.late:
            return
        before_findings, self._findings[uid] = self._findings.get(uid, ()), report.findings
        self.update_node(uid)
        reported = {finding.check for finding in report.findings}
        for check in {finding.check for finding in before_findings} - reported:
            self.diagnosis.record_cleared(uid, check)
        for check in reported:
            self.diagnosis.confine(uid, check, self._onset(report, check))
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
            if is_recovery(check, before_findings, report.findings, self.diagnosis.are_related):
                self.diagnosis.record_active(uid, check)
            else:
                self._vote(uid, check, topologies, age if age > _OLD else 0.0)
        self._record_kernel_confirmations(uid, report)

    def _record_kernel_confirmations(self, uid: str, report: LatestReport) -> None:
        """Record on which findings the kernel log and another source agree."""
        for finding in report.findings:
            if finding.data_status == DataStatus.FRESH and is_kernel_confirmed(finding):
                self.diagnosis.record_kernel_confirmation(uid, finding.check)

    def _firing(self, report: LatestReport) -> dict[str, tuple[tuple[str, ...], float]]:
        """Return the checks that fire with fresh data, with their topologies and their age in seconds."""
        firing: dict[str, tuple[tuple[str, ...], float]] = {}
        for finding, began in zip(report.findings, report.began, strict=True):
            if finding.data_status == DataStatus.FRESH:
                age = max(0.0, self._now.wall - began)
                firing[finding.check] = finding.topologies, max(age, firing.get(finding.check, ((), 0.0))[1])
        return firing

    def _vote_for_all(self, uid: str) -> None:
        """Vote for findings from before the first report, with their onset; not for those that began after
        operators excluded the node: the cause may be their work.
        """
        report = self._state.reports.get(uid)
        if report is None or report.late:
            return
        fires = self._firing(report)
        for check, (topologies, age) in fires.items():
            if self._now.mono - age >= self._excluded.get(uid, inf):
                self.diagnosis.record_active(uid, check)
            else:
                self._vote(uid, check, topologies, age)
        self._fires[uid] = frozenset(fires)
        self._record_kernel_confirmations(uid, report)

    def _vote(self, uid: str, check: str, topologies: tuple[str, ...], age: float) -> None:
        """Have a node vote, unless it has voted too often. age: seconds since the check began to fire."""
        now = self._now.mono
        left, at = self._votes.get(uid, (MAX_VOTES, now))
        left = min(MAX_VOTES, left + max(0.0, now - at) / VOTE_INTERVAL)
        if left >= 1.0:
            left -= 1.0
            report = self._state.reports.get(uid)
            observed = report is None or report.sequence >= _ESTABLISHED
            self.diagnosis.vote(uid, check, topologies, now - age, observed=observed)
        self._votes[uid] = left, now

    def update_stale(self, stale: Set[str], now: Instant) -> None:
        """Set the nodes with stale agents. An agent that announced its end does not vote for that."""
        self._now = now
        missing = self._missing.update(stale, now)
        if stale is self._stale and not missing:
            return
        for uid in missing:
            self.update_node(uid)
        for uid in stale - self._stale | missing:
            if self._is_silent(uid):
                self.diagnosis.vote(uid, STALE_CHECK, _OF_SILENCE, now.mono)
        for uid in self._stale - stale:
            self.diagnosis.record_cleared(uid, STALE_CHECK)
        self._stale = stale
        self.diagnosis.voting.unreported = len(stale - self._state.reports.keys())

    def _is_silent(self, uid: str) -> bool:
        """Return whether a stale agent once reported, and did not announce its end. An agent that never
        reported to this aggregator counts if it stopped at about the start: an earlier one may have announced
        its end.
        """
        report = self._state.reports.get(uid)
        return not report.leaving if report is not None else uid in self._missing

    def is_confirmed(self, uid: str, check: str) -> bool:
        """Return whether another source confirms a check on a node: the kernel log and another source agree,
        or another check, from another source, found something at about the same time. For a stale agent:
        whether the kubelet is not ready either.
        """
        if check == STALE_CHECK:
            node = self._state.nodes.get(uid)
            return node is not None and not node.ready
        report = self._state.reports.get(uid)
        if report is None:
            return False
        found = list(zip(report.findings, report.began, strict=True))
        own = [(finding, began) for finding, began in found if finding.check == check]
        sources = {evidence.source for finding, _ in own for evidence in finding.evidence}
        return any(is_kernel_confirmed(finding) for finding, _ in own) or any(
            other.check != check
            and any(evidence.source not in sources for evidence in other.evidence)
            and any(abs(began - since) <= _TOGETHER for _, since in own)
            for other, began in found
        )

    def shown_faults(self, domain: str, fault_classes: Collection[str], now: float) -> dict[str, float]:
        """Return when each node of a domain last showed any of some fault classes, in seconds of the
        monotonic clock, by uid.

        A stale node shows the faults of its latest report. Without any report, a node with the mark of the
        domain shows them too, and one that stopped with the domain: nothing proves that they are over. The
        same applies to each node of a restored domain, once all agents had the time to report.
        """
        shown: dict[str, float] = {}
        degraded, began = self.diagnosis.degraded_domains.get(domain), self.diagnosis.voting.began
        is_restored = degraded is not None and degraded.restored
        is_unproven = is_restored and began is not None and now - began >= ALL_REPORTED
        counts_silence = self.diagnosis.has_fault_class(STALE_CHECK, fault_classes)
        for uid in self.domain_members.nodes(domain):
            report = self._state.reports.get(uid)
            if report is None:
                marks = self._state.observed_marks(uid).node.degraded
                is_marked = any(mark.domain == domain for mark in marks)
                stopped = self._was_silent(uid) or self._stopped_with(uid, domain)
                times = [now] if is_unproven or is_marked or (counts_silence and stopped) else []
            else:
                times = [
                    self._last_shown(finding, began, fault_classes, now)
                    for finding, began in zip(report.findings, report.began, strict=True)
                    if self.diagnosis.has_fault_class(finding.check, fault_classes)
                ]
            if uid in self._stale and self._is_silent(uid) and counts_silence:
                times.append(now)
            if times:
                shown[uid] = max(times)
        return shown

    def restore_symptoms(self, symptoms: Iterable[Symptom]) -> None:
        """Restore which nodes had a stale agent, from the symptoms of a recorded incident of a domain."""
        self._silent_before.update(symptom.target for symptom in symptoms if symptom.check == STALE_CHECK)

    def _was_silent(self, uid: str) -> bool:
        """Return whether a node without any report had a stale agent before this start."""
        placement = self._state.placements.get(uid)
        return placement is not None and placement.name in self._silent_before and uid in self._stale

    def _stopped_with(self, uid: str, domain: str) -> bool:
        """Return whether the kubelet of a node stopped when a domain became degraded, or later."""
        node, degraded = self._state.nodes.get(uid), self.diagnosis.degraded_domains.get(domain)
        if node is None or node.ready or degraded is None:
            return False
        return node.not_ready_since >= self._now.wall_of(degraded.began) - _TOGETHER

    def nodes_showing(self, check: str) -> dict[str, float]:
        """Return the nodes that show a check in their latest report, also those that may not vote, with the
        onset in seconds of the monotonic clock.
        """
        return {
            uid: self._onset(report, check)
            for uid, report in self._state.reports.items()
            if uid in self._state.placements and any(finding.check == check for finding in report.findings)
        }

    def _onset(self, report: LatestReport, check: str) -> float:
        """Return when a check began to fire in a report that shows it, in seconds of the monotonic clock."""
        found = zip(report.findings, report.began, strict=True)
        began = min(began for finding, began in found if finding.check == check)
        return min(self._now.mono, self._now.mono_of(began))

    def _last_shown(
        self, finding: ReportedFinding, began: float, fault_classes: Collection[str], now: float
    ) -> float:
        """Return when a finding last showed its fault, in seconds of the monotonic clock: now, except for a
        warning of a past event, such as a lost link, which lasts longer than the fault. began: seconds since
        the epoch.
        """
        classes = self.diagnosis.voting.classes_of(finding.check)
        if finding.health != Health.WARNING or any(
            classes[name].vote_class.lasting for name in classes.keys() & set(fault_classes)
        ):
            return now
        latest = began + finding.age - min((item.age for item in finding.evidence), default=finding.age)
        return min(self._now.mono, self._now.mono_of(latest))

    def symptom(self, uid: str, fault_classes: tuple[str, ...]) -> Symptom | None:
        """Return the symptom of a node for some fault classes, any if empty; None if it has none."""
        placement, report = self._state.placements.get(uid), self._state.reports.get(uid)
        if placement is None or (report is None and not self._was_silent(uid)):
            return None
        for finding in report.findings if report is not None else ():
            if not fault_classes or self.diagnosis.has_fault_class(finding.check, fault_classes):
                return Symptom(
                    finding.check, f"{placement.name}, {finding.target}", finding.health, finding.message
                )
        return Symptom(STALE_CHECK, placement.name, Health.WARNING) if uid in self._stale else None
