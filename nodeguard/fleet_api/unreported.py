"""Views of nodes as the objects of their cluster show them, without reports and policy: marks and incidents.
Pure.

They are those of the aggregator, without what only reports, the policy or the plan have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.incident import describe_incident, select_incidents, summarize_incident
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.node import MarkView, NodeSummary, ReleaseWaitView
from nodeguard.fleet_api.schema.unreported import UnreportedList, UnreportedNode, UnreportedSummary
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.model.check import Check
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.label_selector import EVERY_NODE, LabelSelector
from nodeguard.model.projection import project

UNRESOLVED = frozenset(IncidentState) - {IncidentState.RESOLVED}

# Only the plan of the leader has the condition of a release.
_NOT_READ = ReleaseWaitView("evaluation", "what only the aggregator knows")


def list_unreported(
    planner: Planner,
    service: ServiceState,
    now: Instant,
    not_read: str,
    selector: LabelSelector = EVERY_NODE,
) -> UnreportedList:
    """Return the nodes of the fleet that a selector selects, by name. planner: with the Nodes and incidents
    of a cluster. not_read: as of UnreportedList.
    """
    incidents = defaultdict[str, list[Incident]](list)
    for incident in select_incidents(planner, service, UNRESOLVED):
        incidents[incident.uid].append(incident)
    listed = list_nodes(planner, now, selector)
    nodes = (
        _summary(planner, service, node, incidents[planner.state.uid(node.node)], now)
        for node in listed.nodes
    )
    return project(UnreportedList, listed, nodes=tuple(nodes), not_read=not_read)


def _summary(
    planner: Planner, service: ServiceState, node: NodeSummary, incidents: Sequence[Incident], now: Instant
) -> UnreportedSummary:
    """Return a node in a list. incidents: its unresolved ones, worst first."""
    states = Counter(incident.state for incident in incidents if not incident.injected)
    marks = marks_of_node(planner, planner.state.uid(node.node), now)
    cause: dict[str, str | float] = {}
    if incidents:
        first = summarize_incident(planner, incidents[0], service, now)
        cause = {"worst": first.cause, "message": first.message, "since": first.since, "age": first.age}
    elif marks:
        cause = {"worst": marks[0].check, "since": marks[0].since, "age": marks[0].age}
    return project(
        UnreportedSummary,
        node,
        **cause,
        stale=None,
        pool="",
        withheld=states[IncidentState.WITHHELD],
        would_mark=states[IncidentState.DRY_RUN],
    )


def describe_unreported(
    planner: Planner,
    service: ServiceState,
    name: str,
    now: Instant,
    checks: Mapping[str, Check],
    not_read: str,
    condition: str,
) -> UnreportedNode | None:
    """Return a node in full; None where no node has this name. planner, not_read: as of list_unreported.
    condition: as of UnreportedNode.
    """
    node = describe_node(planner, service, name, now, checks)
    if node is None:
        return None
    views = (
        describe_incident(planner, service, incident.name, now, checks)
        for incident in _open_incidents(planner, service, name)
    )
    return project(
        UnreportedNode,
        node,
        stale=None,
        pool="",
        domains=(),
        budgets=(),
        marks=_without_waits(node.marks),
        not_read=not_read,
        condition=condition,
        open_incidents=tuple(
            replace(view, marks=_without_waits(view.marks)) for view in views if view is not None
        ),
    )


def _open_incidents(planner: Planner, service: ServiceState, name: str) -> list[Incident]:
    """Return the unresolved incidents of a node, worst first, and those of others that explain them, or a
    mark of it.
    """
    own = select_incidents(planner, service, UNRESOLVED, name)
    parents = {incident.parent for incident in own}
    degraded = {mark.domain for mark in planner.state.marks.latest(planner.state.uid(name)).node.degraded}
    return own + [
        incident
        for incident in select_incidents(planner, service, UNRESOLVED)
        if not incident.uid and (incident.name in parents or incident.domain in degraded)
    ]


def _without_waits(marks: Sequence[MarkView]) -> tuple[MarkView, ...]:
    return tuple(replace(mark, wait=_NOT_READ) for mark in marks)
