"""Incidents, told: those that are asked for, worst first, and one of them in full. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import resource_of
from nodeguard.fleet.incidents.node_incidents import unconfirmed_until
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView, SymptomView
from nodeguard.fleet_api.schema.status import VERSION, IncidentSummary
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from nodeguard.model.instant import Instant, rfc3339

# Incidents of one answer, at most.
MAX_INCIDENTS = 1000

# What a person has to look at first, of those that are equally bad: sick and at work, then what is not.
_ORDER = (
    IncidentState.WITHHELD,
    IncidentState.DRY_RUN,
    IncidentState.PENDING,
    IncidentState.OPEN,
    IncidentState.MARKED,
    IncidentState.ADVISED,
    IncidentState.RECOVERING,
    IncidentState.RESOLVED,
)
_NOBODY = OperatorDecision("")


def list_incidents(
    planner: Planner,
    service: ServiceState,
    now: Instant,
    states: Collection[IncidentState] = (),
    node: str = "",
) -> IncidentList:
    """Incidents, worst first. states: which, all but what is resolved where empty. node: of which, by name;
    of all where empty.
    """
    wanted = states or frozenset(IncidentState) - {IncidentState.RESOLVED}
    uid = planner.state.uid(node) if node else ""
    found = [
        one
        for one in (_of_node(planner, uid) if node else all_incidents(planner))
        # What is a part of another is told there.
        if one.state in wanted and (node or states or not one.parent)
    ]
    found.sort(key=lambda one: _rank(one, service))
    lines = tuple(summarize_incident(planner, one, service, now) for one in found[:MAX_INCIDENTS])
    return IncidentList(VERSION, rfc3339(now.wall), lines, len(found) - len(lines))


def worst_incidents(
    planner: Planner, service: ServiceState, now: Instant, most: int
) -> tuple[IncidentSummary, ...]:
    """The few incidents that stand out, worst first: of those of one check and health, the worst alone."""
    found = sorted(
        (one for one in all_incidents(planner) if one.is_open and not one.parent),
        key=lambda one: _rank(one, service),
    )
    kinds = Counter((one.cause, one.health) for one in found)
    first: dict[tuple[str, Health], Incident] = {}
    for one in found:
        first.setdefault((one.cause, one.health), one)
    worst = sorted(first, key=lambda kind: (*_rank(first[kind], service)[:3], -kinds[kind]))
    return tuple(
        replace(summarize_incident(planner, first[kind], service, now), alike=kinds[kind] - 1)
        for kind in worst[:most]
    )


def describe_incident(
    planner: Planner, service: ServiceState, name: str, now: Instant
) -> IncidentView | None:
    """One incident in full; None where there is none of that name."""
    one = next((one for one in all_incidents(planner) if one.name == name), None)
    if one is None:
        return None
    until = _until(planner, one, now)
    decided = service.decisions.get(name, _NOBODY)
    return IncidentView(
        version=VERSION,
        at=rfc3339(now.wall),
        name=one.name,
        node=one.node,
        domain=one.domain,
        resource=one.target,
        scope=one.scope,
        component=one.component,
        cause=one.cause,
        fault_class=one.fault_class,
        health=one.health,
        action=one.action,
        state=one.state,
        since=rfc3339(one.first_seen),
        age=age(now, one.first_seen),
        last_transition=rfc3339(one.last_transition),
        last_transition_age=age(now, one.last_transition),
        resolved_at=rfc3339(one.resolved_at) if one.resolved_at else "",
        occurrences=one.occurrences,
        message=one.message,
        reason=_detail(planner, one),
        symptoms=tuple(
            SymptomView(each.check, each.target, each.health, each.message, each.evidence)
            for each in one.symptoms
        ),
        marks=tuple(
            mark for mark in marks_of_node(planner, one.uid, now) if resource_of(mark.target) == one.target
        ),
        acknowledged=decided.acknowledged,
        clear_request=decided.clear,
        clear_result=decided.answer,
        clear_message=decided.answer_message,
        until=rfc3339(until) if until else "",
        seconds_left=round(max(0.0, until - now.wall), 1),
    )


def all_incidents(planner: Planner) -> Iterator[Incident]:
    """Yield all incidents as they are now, pending ones and those that are over among them."""
    for uid in planner.incidents.keys() | planner.pending.keys():
        yield from _of_node(planner, uid)


def _of_node(planner: Planner, uid: str) -> Iterable[Incident]:
    """Return the incidents of a node, of domains and checks where the uid is empty."""
    return {**planner.incidents.get(uid, {}), **planner.pending.get(uid, {})}.values()


def summarize_incident(
    planner: Planner, one: Incident, service: ServiceState, now: Instant
) -> IncidentSummary:
    """An incident in short."""
    until = _until(planner, one, now)
    return IncidentSummary(
        name=one.name,
        node=one.node,
        resource=one.target,
        cause=one.cause,
        health=one.health,
        state=one.state,
        since=rfc3339(one.first_seen),
        age=age(now, one.first_seen),
        scope=one.scope,
        summary=_says(one, _detail(planner, one)),
        acknowledged=service.decisions.get(one.name, _NOBODY).acknowledged,
        domain=one.domain,
        until=rfc3339(until) if until else "",
        seconds_left=round(max(0.0, until - now.wall), 1),
    )


def _outcomes(planner: Planner, one: Incident) -> Iterator[MarkDecision]:
    """Yield the decisions that an incident of a node shows."""
    for outcome in planner.decisions.get(one.uid, ()) if one.uid else ():
        if outcome.state == one.state and resource_of(outcome.request.target) == one.target:
            yield outcome


def _until(planner: Planner, one: Incident, now: Instant) -> float:
    """Return when the grace period of a pending incident ends; 0 for any other."""
    if one.state != IncidentState.PENDING:
        return 0.0
    ends = [outcome.until for outcome in _outcomes(planner, one)]
    seat, report = planner.state.placements.get(one.uid), planner.reports.get(one.uid)
    if not ends and seat is not None and report is not None:
        return unconfirmed_until(seat, report, planner.policy, now.wall).get(one.target, 0.0)
    return min(ends, default=0.0)


def _detail(planner: Planner, one: Incident) -> str:
    """Return why an incident is in its state: of a withheld mark in the words of the latest plan, since the
    used amount of a budget changes without a change of the incident.
    """
    if one.state != IncidentState.WITHHELD:
        return one.detail
    return next((outcome.reason for outcome in _outcomes(planner, one) if outcome.reason), one.detail)


def _says(one: Incident, detail: str) -> str:
    """Return what is wrong; of an incident of many nodes the evidence, and why nothing is done about it."""
    if one.node:
        return detail or one.message
    why = detail if one.state in {IncidentState.WITHHELD, IncidentState.RESOLVED} else ""
    return "; ".join(filter(None, (one.message, why)))


def _rank(one: Incident, service: ServiceState) -> tuple[bool, int, int, float, str]:
    """Its place among all: what a person knows of comes last; of those that are alike, the newest first."""
    known = service.decisions.get(one.name, _NOBODY).acknowledged != ""
    return (
        known or one.state == IncidentState.RESOLVED,
        -one.health.rank,
        _ORDER.index(one.state),
        -one.first_seen,
        one.name,
    )
