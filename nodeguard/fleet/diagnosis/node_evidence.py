"""The evidence about nodes from their latest reports, Nodes and marks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from math import inf
from typing import NamedTuple

from msgspec import Struct

from nodeguard.fleet.diagnosis.results import ALL_REPORTED, NO_AGENT, DegradedDomain
from nodeguard.fleet.diagnosis.stopped_agents import StoppedAgents
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.fleet.state.wall_clock import CLOCK_TOLERANCE
from nodeguard.model.diagnosis import STALE_CHECK
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause
from nodeguard.wire.report import ReportedFinding

# The topologies in which a node votes of which the agent stopped.
STOPPED_TOPOLOGIES: tuple[str, ...] = ("power", "fabric")

# Seconds within which the findings of two checks belong together.
_TOGETHER = 600.0

# The kernel log: a driver writes to it, whatever a check does. Derived signals repeat other sources.
_KERNEL_LOG, _DERIVED = "kmsg", "derived"


def is_kernel_confirmed(*findings: ReportedFinding) -> bool:
    """Return whether the kernel log and another source agree in some findings: the log has a line about the
    fault, and a reading shows it too. Two readings may be the two parts of one condition.
    """
    sources = {evidence.source for finding in findings for evidence in finding.evidence} - {_DERIVED}
    return _KERNEL_LOG in sources and len(sources) > 1


class JobStart(Struct, frozen=True):
    """A start of a job on a node, and its time in seconds of the monotonic clock."""

    job: str
    at: float


class ShownFault(NamedTuple):
    """When the fault of a node began, infinity if unknown, and when it last showed, in monotonic seconds."""

    since: float
    last: float


class NodeEvidence:
    """Answers the questions of the diagnosis. members: all nodes by domain, also those without votes.
    stopped: the agents that stopped. observed_at: time of the latest input.
    """

    def __init__(self, state: FleetState) -> None:
        self.members = DomainMembers()
        self.stopped = StoppedAgents(state)
        self.observed_at = Instant(0.0, 0.0, "")
        self._state = state

    def exists(self, uid: str) -> bool:
        """Return whether a Node exists, with or without domains."""
        return uid in self._state.placements

    def job_starts(self, uid: str) -> Iterable[JobStart]:
        """Return the starts of jobs on a node, in seconds of the monotonic clock."""
        jobs, mono_of = self._state.jobs.jobs(uid), self.observed_at.mono_of
        return [JobStart(job.name, mono_of(at)) for job in jobs for at in job.starts]

    def is_marked(self, uid: str, check: str) -> bool:
        """Return whether a mark of a check, not an injected one, is recorded on a node or its devices."""
        causes = self._state.marks.observed(uid).records.causes()
        return any(cause.check == check and not cause.injected for _, cause in causes)

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

    def is_fact(self, check: str, uids: Collection[str]) -> bool:
        """Return whether at least half of some nodes report what a check found as a fact."""
        reports = self._state.reports
        facts = {
            uid
            for uid in uids
            if uid in reports
            for finding in reports[uid].findings
            if finding.fact and finding.check == check
        }
        return len(facts) * 2 >= len(uids) > 0

    def is_marked_since(self, cause: MarkCause, began: float, now: Instant) -> bool:
        """Return whether a mark is certainly from after a time, in seconds of the monotonic clock: not if the
        wall clock was set back over it.
        """
        times = self._state.clock.mono_times(cause.since, now)
        return bool(times) and min(times) >= began - CLOCK_TOLERANCE

    def has_current_report(self, uid: str) -> bool:
        """Return whether the latest report of a node is of its present state."""
        report = self._state.reports.get(uid)
        return report is not None and not report.late and uid not in self.stopped.stale

    def is_unconfirmed(self, uid: str, check: str) -> bool:
        """Return whether a current report proves that no other source confirms a check on a node."""
        return self.has_current_report(uid) and not self.is_confirmed(uid, check)

    def shown_checks(self, uid: str) -> Set[str]:
        """Return the checks that a node shows by its latest report, also with data that is not fresh."""
        report = self._state.reports.get(uid)
        checks = {finding.check for finding in report.findings} if report is not None else set()
        return checks | {STALE_CHECK} if uid in self.stopped.since else checks

    def nodes_showing(self, check: str) -> set[str]:
        """Return the nodes that show a check, also those that may not vote."""
        showing = {
            uid
            for uid, report in self._state.reports.items()
            for finding in report.findings
            if finding.check == check
        }
        return showing & self._state.placements.keys()

    def onsets(self, check: str) -> Mapping[str, float]:
        """Return the onset of a check on each node that shows it: see `nodes_showing`."""
        return {uid: self.onset(self._state.reports[uid], check) for uid in self.nodes_showing(check)}

    def onset(self, report: LatestReport, check: str) -> float:
        """Return when a check began to fire in a report that shows it, in seconds of the monotonic clock."""
        found = zip(report.findings, report.began, strict=True)
        began = min(began for finding, began in found if finding.check == check)
        return self._mono(began)

    def received(self, report: LatestReport) -> Mapping[str, float]:
        """Return when a node received new versions, by their domains, in monotonic seconds."""
        return {path: self._mono(at) for path, at in report.received.items()}

    def _mono(self, at: float) -> float:
        """Return a past time in seconds of the monotonic clock. at: seconds since the epoch."""
        return min(self.observed_at.mono, self.observed_at.mono_of(at))

    def shown_faults(
        self, uids: Iterable[str], degraded: DegradedDomain, votes: VoteIndex, now: float
    ) -> Mapping[str, Sequence[ShownFault]]:
        """Return the faults of any fault class of a degraded domain that some nodes show, by uid.

        A stale node shows the faults of its latest report. A node without any report shows them if it stopped
        with the domain, or may have shown them before this start: nothing proves that they are over.
        """
        shown: dict[str, Sequence[ShownFault]] = {}
        classes = frozenset(degraded.fault_classes)
        counts_stopped = not classes.isdisjoint(votes.classes_of(STALE_CHECK))
        for uid in uids:
            report, faults = self._state.reports.get(uid), list[ShownFault]()
            if report is not None:
                faults += [
                    ShownFault(self._mono(began), self._last_shown(finding, began, classes, votes, now))
                    for finding, began in zip(report.findings, report.began, strict=True)
                    if not classes.isdisjoint(votes.classes_of(finding.check))
                ]
            elif counts_stopped and (self.stopped.was_recorded(uid) or self._stopped_with(uid, degraded)):
                faults.append(ShownFault(degraded.began, now))
            elif self._may_have_shown(uid, degraded, votes, now):
                faults.append(ShownFault(inf, now))
            if counts_stopped and uid in self.stopped.since:
                faults.append(ShownFault(self.stopped.since[uid], now))
            if faults:
                shown[uid] = faults
        return shown

    def _may_have_shown(self, uid: str, degraded: DegradedDomain, votes: VoteIndex, now: float) -> bool:
        """Return whether a node without any report may have shown the fault of a domain before this start:
        with the mark of the domain, and afterwards any node of it. After a day without a report, a node has
        no agent, or stopped before the domain failed, unless its kubelet stopped with the domain.
        """
        after = now - votes.began
        if not degraded.restored or (after >= NO_AGENT and not self._stopped_with(uid, degraded)):
            return False
        marks = self._state.marks.observed(uid).records.node.degraded
        return after >= ALL_REPORTED or any(mark.domain == degraded.domain for mark in marks)

    def _stopped_with(self, uid: str, degraded: DegradedDomain) -> bool:
        """Return whether the kubelet of a node stopped when a domain became degraded, or later."""
        node = self._state.nodes.get(uid)
        if node is None or node.ready:
            return False
        return node.not_ready_since >= self.observed_at.wall_of(degraded.began) - _TOGETHER

    def _last_shown(
        self,
        finding: ReportedFinding,
        began: float,
        fault_classes: Collection[str],
        votes: VoteIndex,
        now: float,
    ) -> float:
        """Return when a finding last showed its fault, in seconds of the monotonic clock: now, except for a
        warning of a past event, such as a lost link, which lasts longer than the fault. began: seconds since
        the epoch.
        """
        classes = votes.classes_of(finding.check)
        if finding.health != Health.WARNING or any(
            classes[name].vote_class.lasting for name in classes.keys() & set(fault_classes)
        ):
            return now
        latest = began + finding.age - min((item.age for item in finding.evidence), default=finding.age)
        return self._mono(latest)
