"""The votes for the diagnosis, collected from reports and stale agents, with the versions of nodes. Pure.

A node does not vote under maintenance, with an operator's cordon, or before its first report.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.target import target_kind
from nodeguard.wire.report import ReportedFinding


def version_domains(report: LatestReport) -> tuple[str, ...]:
    """Return every version of a node from its latest report: several of one topology if its parts differ.

    A domain of a version may be most of the fleet: it has no budget.
    """
    return tuple(
        dict.fromkeys(f"{topology}/{_step(version)}" for topology, version in _versions(report) if version)
    )


def is_kernel_confirmed(finding: ReportedFinding) -> bool:
    """Return whether the kernel log and another source agree in a finding: the log has a line about the
    fault, and a reading shows it too. Two readings may be the two parts of one condition.
    """
    sources = {evidence.source for evidence in finding.evidence} - {_DERIVED}
    return _KERNEL_LOG in sources and len(sources) > 1


def _versions(report: LatestReport) -> Iterator[tuple[str, str]]:
    inventory = report.inventory
    yield "driver", inventory.driver
    parts = sorted(inventory.components.items())
    yield from (("vbios", part.vbios) for target, part in parts if target_kind(target) == "gpu")
    yield "kernel", inventory.kernel
    yield from (("firmware", part.firmware) for target, part in parts if target_kind(target) == "port")
    yield "agent", report.agent
    yield "catalogue", report.catalogue


def _step(version: str) -> str:
    """Return a version as a step of a path, which `/` separates."""
    return version.replace("/", "_")


# The topologies in which a node with a stale agent votes.
_OF_SILENCE = ("power", "fabric")

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
        self.diagnosis = Diagnosis(rule, self.is_confirmed)
        self._state = state
        self._fires: dict[str, Set[str]] = {}
        self._stale: Set[str] = frozenset()
        self._votes: dict[str, tuple[float, float]] = {}
        self._now = Instant(0.0, 0.0, "")

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Set another rule: the diagnosis starts again; degraded domains and suppressed checks stay until
        cleared.
        """
        before = self.diagnosis
        if replace(rule, enforce=()) == replace(before.rule, enforce=()):
            return
        self.diagnosis = Diagnosis(rule, self.is_confirmed)
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
        self.domain_members.set_domains(uid, paths)
        has_data = uid in self._state.liveness.last_reports or self._is_marked(uid)
        votes = has_data and not (placement.cordoned_by_user or placement.maintenance)
        report = self._state.reports.get(uid)
        versions = version_domains(report) if report is not None else ()
        voted = bool(self.diagnosis.members.paths(uid))
        self.diagnosis.set_domains(uid, (*paths, *versions) if votes else (), self._now.mono)
        if not self.diagnosis.members.paths(uid):
            self._fires.pop(uid, None)
        elif not voted:
            self._vote_for_all(uid)

    def _is_marked(self, uid: str) -> bool:
        """Return whether a node carries the mark of a domain: then it counts before its first report."""
        return bool(self._state.observed_marks(uid).node.degraded)

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.update_node(uid)
        self._fires.pop(uid, None)
        self._votes.pop(uid, None)

    def record_report(self, uid: str, now: Instant) -> None:
        """Record a node's report, with the checks that fire on it now."""
        self._now = now
        report = self._state.reports.get(uid)
        if report is None or report.late:
            return
        self.update_node(uid)
        if not self.diagnosis.members.paths(uid):
            return
        before = self._fires.get(uid)
        if before is None:
            self._vote_for_all(uid)
            return
        reported = {finding.check for finding in report.findings}
        for check in before - reported:
            self.diagnosis.record_cleared(uid, check)
        # A finding that is not fresh has not ended, and is not new when it is fresh again.
        fires = self._firing(report)
        self._fires[uid] = fires.keys() | (before & reported)
        for check in fires.keys() - before:
            topologies, age = fires[check]
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
        """Vote for findings from before the first report, with their onset."""
        report = self._state.reports.get(uid)
        if report is None or report.late:
            return
        fires = self._firing(report)
        for check, (topologies, age) in fires.items():
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
            self.diagnosis.vote(uid, check, topologies, now - age)
        self._votes[uid] = left, now

    def onset_times(self, uid: str) -> dict[tuple[str, str], float]:
        """Return the onset of each finding of a node, in seconds since the epoch, by check and target."""
        report = self._state.reports.get(uid)
        if report is None:
            return {}
        return {
            (finding.check, finding.target): at
            for finding, at in zip(report.findings, report.began, strict=True)
        }

    def update_stale(self, stale: Set[str], now: Instant) -> None:
        """Set the nodes with stale agents. An agent that announced its end does not vote for that."""
        self._now = now
        if stale is self._stale:
            return
        for uid in stale - self._stale:
            report = self._state.reports.get(uid)
            if not report.leaving if report is not None else self._is_marked(uid):
                self.diagnosis.vote(uid, STALE_CHECK, _OF_SILENCE, now.mono)
        for uid in self._stale - stale:
            self.diagnosis.record_cleared(uid, STALE_CHECK)
        self._stale = stale

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

    def symptom(self, uid: str, fault_classes: tuple[str, ...]) -> Symptom | None:
        """Return the symptom of a node for some fault classes, any if empty; None if it has none."""
        placement, report = self._state.placements.get(uid), self._state.reports.get(uid)
        if placement is None or report is None:
            return None
        for finding in report.findings:
            if not fault_classes or self.diagnosis.has_fault_class(finding.check, fault_classes):
                return Symptom(
                    finding.check, f"{placement.name}, {finding.target}", finding.health, finding.message
                )
        return Symptom(STALE_CHECK, placement.name, Health.WARNING) if uid in self._stale else None
