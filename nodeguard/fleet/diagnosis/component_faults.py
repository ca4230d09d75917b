"""What is heard of parts: which there are, and which faults are their own. No input, output or clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from nodeguard.fleet.diagnosis.repeat_offenders import FaultHistory, RepeatOffender
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant
from nodeguard.model.target import target_kind
from nodeguard.wire.report import ReportedFinding

# Seconds that a fault waits before it is held against its part: what parts share may be to blame, which
# shows only once others fail, too.
_WAITS = 600.0

# Faults that wait, the latest.
_WAITING = 100_000

# Ids that a node has for its parts, more than which no node has at one time.
_IDS = 512

# Parts of a node that may fail within so many seconds, each for itself: the ends of one link do.
_MANY, _TOGETHER = 2, 600.0


class PendingFault(Struct, frozen=True):
    """A part of a node begins to fail. due: when it counts, in seconds of the receiver's monotonic clock.
    at: when it began, in seconds since the epoch.
    """

    part: str
    uid: str
    node: str
    slot: str
    check: str
    at: float
    due: float


class ComponentFaultTracker:
    """told_by: gives the name of the incident that tells of what a check found on a node since a moment, of a
    domain or a check that is held; empty where the fault is the part's own.
    """

    def __init__(self, told_by: Callable[[str, str, float, Instant], str]) -> None:
        self.history = FaultHistory()
        self._told_by = told_by
        self._failing: dict[str, Mapping[str, tuple[float, ReportedFinding]]] = {}
        self._began: dict[str, dict[str, float]] = {}
        self._waiting: deque[PendingFault] = deque(maxlen=_WAITING)

    def record_report(self, uid: str, node: str, one: LatestReport, now: Instant) -> None:
        """A node's report. A part fails from when anything is found on it until nothing is."""
        for slot, occupant in one.inventory.components.items():
            if occupant.id and has_component_id(slot):
                self.history.record_component(occupant.id, now.wall, node, slot)
        failing = component_failures(one)
        before = self._failing.pop(uid, {})
        if len(self._began.get(uid, ())) > _IDS:
            del self._began[uid]
        for part, (began, each) in failing.items():
            if part not in before:
                fault = PendingFault(part, uid, node, each.target, each.check, began, now.mono + _WAITS)
                self._waiting.append(fault)
                self._began.setdefault(uid, {})[part] = began
        if failing:
            self._failing[uid] = failing

    def remove_node(self, uid: str) -> None:
        """A node that is no more; its parts may be in another."""
        self._failing.pop(uid, None)
        self._began.pop(uid, None)

    def tick(self, now: Instant) -> None:
        """Hold against parts what has waited long enough, and nothing that they share explains."""
        if not (self._waiting and self._waiting[0].due <= now.mono):
            return
        self.history.forget(now.wall)
        while self._waiting and self._waiting[0].due <= now.mono:
            one = self._waiting.popleft()
            began = self._began.get(one.uid, {})
            if is_isolated(one.at, began.values()) and not self._told_by(one.uid, one.check, one.at, now):
                self.history.record_fault(one.part, one.node, one.slot, one.check, one.at)

    def repeat_offenders(self, now: Instant) -> tuple[RepeatOffender, ...]:
        """The lemons, the worst first."""
        return self.history.repeat_offenders(now.wall)


def component_failures(one: LatestReport) -> dict[str, tuple[float, ReportedFinding]]:
    """What fails by a report, by part: the first finding that counts, and when it began."""
    found: dict[str, tuple[float, ReportedFinding]] = {}
    for each, began in zip(one.findings, one.began, strict=True):
        is_first = each.component not in found or began < found[each.component][0]
        if is_first and each.data_status == DataStatus.FRESH and is_component_fault(each, each.target):
            found[each.component] = began, each
    return found


def is_component_fault(one: ReportedFinding | Incident, target: str) -> bool:
    """Return whether something is a fault of the component in a target: not what a restart of the work, or
    of a service, fixes.
    """
    is_bad = one.health in {Health.SUSPECT, Health.FATAL} and one.action.rank > Action.RESTART_SERVICE.rank
    return is_bad and bool(one.component) and has_component_id(target)


def is_isolated(at: float, began: Iterable[float]) -> bool:
    """Whether what a part shows is its own fault, by when each part of its node began to fail: where many did
    at about that moment, it is the node's.
    """
    return sum(1 for each in began if abs(each - at) < _TOGETHER) <= _MANY


def has_component_id(slot: str) -> bool:
    """Whether what sits in a slot has an id of its own: a DIMM is named by its place, as on every board."""
    return target_kind(slot) in _KNOWN


_KNOWN = {"gpu", "nvlink", "nvswitch", "port"}
