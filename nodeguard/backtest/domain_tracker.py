"""Degraded domains of a replay over time: their diagnosis, and the nodes that carried their marks."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.incidents.domain_incidents import shared_incident_name
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.incident import IncidentState


class MarkedTime(Struct):
    """A time in which a Node carried the mark of a domain. uid: of the Node. start, end: seconds since the
    epoch; end is None while it lasts.
    """

    uid: str
    start: float
    end: float | None = None


class DomainSpan(Struct):
    """A time in which a domain was degraded.

    name: the path of its first diagnosis, which names its incident; domain: its latest path, after it
    widened. fault_classes: of the votes. state: `Marked` if its nodes were marked, else `Withheld` or
    `DryRun`. size: of its nodes; voters: number of those that showed the fault. evidence: of the diagnosis.
    start, end: seconds since the epoch; end is None while it lasts. reasons: why it was withheld, or would
    be. marked: times of its marks.
    """

    name: str
    domain: str
    fault_classes: tuple[str, ...]
    state: IncidentState
    size: int
    voters: int
    evidence: str
    start: float
    end: float | None = None
    reasons: list[str] = []
    marked: list[MarkedTime] = []

    @property
    def incident(self) -> str:
        """Return the name of its incident."""
        return shared_incident_name(self.name)


class DomainTracker:
    """Follows the degraded domains of a planner. spans: in the order of their start."""

    def __init__(self) -> None:
        self.spans: list[DomainSpan] = []
        self._degraded: dict[str, DomainSpan] = {}
        self._latest: dict[str, DomainSpan] = {}
        self._marked: dict[str, dict[str, MarkedTime]] = {}

    def plan_applied(self, planner: Planner, plan: Plan, at: float) -> None:
        """Record a plan that was carried out at once."""
        decisions = {decision.degraded.name: decision for decision in planner.domain_marks.decisions.values()}
        for name in self._degraded.keys() - decisions.keys():
            self._degraded.pop(name).end = at
        for name, decision in decisions.items():
            self._update(name, decision, at)
        for node in plan.decisions:
            self._update_marks(node.node, {mark.name or mark.domain for mark in node.record.degraded}, at)

    def node_deleted(self, uid: str, at: float) -> None:
        """Record the deletion of a Node."""
        self._update_marks(uid, set(), at)

    def _update(self, name: str, decision: DomainDecision, at: float) -> None:
        # The plan is carried out at once.
        degraded, state = decision.degraded, IncidentState.MARKED if decision.is_granted else decision.state
        span = self._degraded.get(name)
        if span is None:
            span = DomainSpan(name, degraded.domain, degraded.fault_classes, state, 0, 0, "", at)
            self._degraded[name] = self._latest[name] = span
            self.spans.append(span)
        span.domain, span.fault_classes = degraded.domain, degraded.fault_classes
        span.evidence = decision.evidence
        span.size, span.voters = max(span.size, degraded.size), max(span.voters, len(degraded.voters))
        if span.state != IncidentState.MARKED:
            span.state = state
        if decision.reason and decision.reason not in span.reasons:
            span.reasons.append(decision.reason)

    def _update_marks(self, uid: str, names: set[str], at: float) -> None:
        """Record that a Node carries the marks of these domains, and of no others."""
        marked = self._marked.setdefault(uid, {})
        for name in marked.keys() - names:
            marked.pop(name).end = at
        for name in sorted(names - marked.keys()):
            # A mark follows a decision on its domain.
            marked[name] = MarkedTime(uid, at)
            self._latest[name].marked.append(marked[name])
        if not marked:
            del self._marked[uid]
