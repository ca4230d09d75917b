"""Faults of components: which components there are, and which faults are their own. No input, output or
clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from nodeguard.fleet.components.repeat_offenders import FaultHistory, RepeatOffender
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant
from nodeguard.model.target import target_kind
from nodeguard.wire.report import ReportedFinding

# Seconds that a fault waits before it counts against its component: shared hardware may be the cause, which
# shows only once others fail, too.
_WAITS = 600.0

# Maximum number of faults that wait.
_WAITING = 100_000

# Maximum number of component ids of a node.
_IDS = 512

# Components of a node that may fail within so many seconds independently: the two ends of a link do.
_MANY, _TOGETHER = 2, 600.0


class PendingFault(Struct, frozen=True):
    """A fault that may count against a component. due: when it counts, in seconds of the receiver's monotonic
    clock. at: when it began, see ComponentFaultTracker.
    """

    part: str
    uid: str
    node: str
    target: str
    check: str
    at: float
    due: float


class ComponentFaultTracker:
    """The faults of components. find_parent: returns the incident of a domain or a suppressed check that
    explains the finding of a check on a node since a time; empty if the fault is the component's own.

    Times are seconds since the epoch by the clock as it was at the first report: a jump neither moves the
    faults against each other nor makes them older.
    """

    def __init__(self, find_parent: Callable[[str, str, float, Instant], str]) -> None:
        self.history = FaultHistory()
        self._find_parent = find_parent
        self._failing: dict[str, Mapping[str, tuple[float, ReportedFinding]]] = {}
        self._began: dict[str, dict[str, float]] = {}
        self._waiting: deque[PendingFault] = deque(maxlen=_WAITING)
        self._first: Instant | None = None

    def record_report(self, uid: str, node: str, report: LatestReport, now: Instant) -> None:
        """Record a node's report. A component fails from its first finding until it has none."""
        at = self._steady(now.mono, now)
        for target, component in report.inventory.components.items():
            if component.id and has_component_id(target):
                self.history.record_component(component.id, at, node, target)
        failing = component_failures(report)
        before = self._failing.pop(uid, {})
        if len(self._began.get(uid, ())) > _IDS:
            del self._began[uid]
        for part, (began, finding) in failing.items():
            if part not in before:
                at = self._steady(now.mono_of(began), now)
                fault = PendingFault(part, uid, node, finding.target, finding.check, at, now.mono + _WAITS)
                self._waiting.append(fault)
                self._began.setdefault(uid, {})[part] = at
        if failing:
            self._failing[uid] = failing

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists; its components may be in another."""
        self._failing.pop(uid, None)
        self._began.pop(uid, None)

    def tick(self, now: Instant) -> None:
        """Count the faults that have waited long enough, and that no shared cause explains."""
        if not (self._waiting and self._waiting[0].due <= now.mono):
            return
        passed = self._steady(now.mono, now)
        self.history.forget(passed)
        while self._waiting and self._waiting[0].due <= now.mono:
            fault = self._waiting.popleft()
            began = self._began.get(fault.uid, {})
            if is_isolated(fault.at, began.values()) and not self._find_parent(
                fault.uid, fault.check, now.wall - (passed - fault.at), now
            ):
                self.history.record_fault(fault.part, fault.node, fault.target, fault.check, fault.at)

    def repeat_offenders(self, now: Instant) -> tuple[RepeatOffender, ...]:
        """Return the repeat offenders, the worst first."""
        return self.history.repeat_offenders(self._steady(now.mono, now))

    def _steady(self, mono: float, now: Instant) -> float:
        """Return a time of the monotonic clock by the clock as it was at the first report."""
        self._first = self._first or now
        return self._first.wall_of(mono)


def component_failures(report: LatestReport) -> dict[str, tuple[float, ReportedFinding]]:
    """Return the failing components of a report, by id: their first finding, and when it began."""
    failures: dict[str, tuple[float, ReportedFinding]] = {}
    for finding, began in zip(report.findings, report.began, strict=True):
        is_first = finding.component not in failures or began < failures[finding.component][0]
        if (
            is_first
            and finding.data_status == DataStatus.FRESH
            and is_component_fault(finding, finding.target)
        ):
            failures[finding.component] = began, finding
    return failures


def is_component_fault(finding: ReportedFinding | Incident, target: str) -> bool:
    """Return whether a finding or incident is a fault of the component in a target: one that no restart of
    the work or of a service fixes.
    """
    is_bad = (
        finding.health in {Health.SUSPECT, Health.FATAL} and finding.action.rank > Action.RESTART_SERVICE.rank
    )
    return is_bad and bool(finding.component) and has_component_id(target)


def is_isolated(at: float, began: Iterable[float]) -> bool:
    """Return whether a fault is the component's own, from when each component of its node began to fail: if
    many did at about that time, the node's.
    """
    return sum(1 for onset in began if abs(onset - at) < _TOGETHER) <= _MANY


def has_component_id(target: str) -> bool:
    """Return whether the component in a target has its own id: a DIMM is named by its location only."""
    return target_kind(target) in _KNOWN


_KNOWN = {"gpu", "nvlink", "nvswitch", "port"}
