"""The plan: the decisions for the executors, and the changes of incidents. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from msgspec import Struct

from nodeguard.fleet.decide.release import CauseKey, ReleasedMark, cause_key
from nodeguard.fleet.incidents.events import IncidentEvent
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.decision import CauseFacts, HealthFacts, NodeDecision
from nodeguard.model.incident import Incident
from nodeguard.model.mark import MarkCause, MarkRecord, NodeMarks
from nodeguard.model.policy import MarkWrites

# Returns whether the executors show a decision already, for what the policy writes for a mark. Only they can
# compare it with what they observe: another client may have changed it there.
Carries = Callable[[NodeDecision, MarkWrites], bool]


class Plan(Struct, frozen=True):
    """The decisions that executors do not show yet, and the incidents and Events to record.

    decisions: about the nodes that differ. incidents: those that changed. events: Events to record once.
    released: marks that are released, by uid. transient_incidents: incidents that ended within their grace
    period; they go to the history only. deferred: number of nodes with a granted mark that a later plan
    issues.
    """

    decisions: tuple[NodeDecision, ...] = ()
    incidents: tuple[Incident, ...] = ()
    events: tuple[IncidentEvent, ...] = ()
    released: tuple[tuple[str, ReleasedMark], ...] = ()
    transient_incidents: tuple[Incident, ...] = ()
    deferred: int = 0


class PlannedNodes(Struct):
    """The nodes of a plan.

    decisions: those that executors do not show yet. settled: uids of the nodes without a marked device that
    carry all of these marks, or on which they are being written.
    """

    decisions: list[NodeDecision] = []
    settled: set[str] = set()


def plan_nodes(
    state: FleetState,
    planned: Mapping[str, NodeMarks],
    facts_of: Callable[[str, MarkRecord], HealthFacts],
    carries: Carries,
) -> PlannedNodes:
    """Return the decisions about the planned marks of nodes, by uid, that no executor shows yet.

    facts_of: returns the facts about the record of a node.
    """
    nodes = PlannedNodes()
    for uid, planned_marks in planned.items():
        placement, current = state.placements.get(uid), state.marks.latest(uid)
        if placement is None or placement.hold:
            continue
        has_devices = bool(current.devices or state.marks.observed(uid).records.devices)
        if planned_marks == current and state.marks.is_pending(uid):
            if not has_devices:
                nodes.settled.add(uid)
            continue
        facts = facts_of(uid, planned_marks.node)
        decision = NodeDecision(uid, placement.name, planned_marks, facts)
        if not carries(decision, state.writes(uid)):
            nodes.decisions.append(decision)
        elif planned_marks == current and not has_devices:
            nodes.settled.add(uid)
    return nodes


def shows_decision(state: FleetState, decision: NodeDecision, writes: MarkWrites) -> bool:
    """Return whether a node has exactly the records and marks of a decision, as observed: where nothing else
    than the executor changes them.
    """
    observed = state.marks.observed(decision.node)
    kinds = decision.record.marks if writes.taint else frozenset()
    return (observed.records, observed.present) == (decision.records, kinds)


def health_facts(record: MarkRecord, report: LatestReport | None, proven: Container[CauseKey]) -> HealthFacts:
    """Return the facts about the record of a node, without those of a degraded domain.

    report: the node's latest report, None if there is none. proven: the causes that are over and in their
    soak period.
    """
    return HealthFacts(tuple(_cause_facts(cause, report, proven) for cause in record.causes))


def _cause_facts(cause: MarkCause, report: LatestReport | None, proven: Container[CauseKey]) -> CauseFacts:
    is_proven = cause_key(None, cause) in proven
    for fault in report.faults() if report is not None else ():
        finding = fault.finding
        if (finding.check, finding.target) == (cause.check, cause.target):
            return CauseFacts(cause, finding.message, finding.action, is_proven)
    return CauseFacts(cause, is_proven=is_proven)
