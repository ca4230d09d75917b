"""Incidents, told: those that are asked for, worst first, and one of them in full. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.incidents import unconfirmed_until
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.want import resource_of
from nodeguard.fleet_api.ages import age
from nodeguard.fleet_api.forms import VERSION, IncidentLine
from nodeguard.fleet_api.incident_forms import IncidentList, IncidentPage, SymptomTold
from nodeguard.fleet_api.marks import marks
from nodeguard.fleet_api.service import Service
from nodeguard.model.finding import Health
from nodeguard.model.incident import Decision, Incident, State
from nodeguard.model.instant import Instant, rfc3339

# Incidents of one answer, at most.
MOST = 1000

# What a person has to look at first, of those that are equally bad: sick and at work, then what is not.
_ORDER = (
    State.WITHHELD,
    State.DRY_RUN,
    State.PENDING,
    State.OPEN,
    State.MARKED,
    State.ADVISED,
    State.RECOVERING,
    State.RESOLVED,
)
_NOBODY = Decision("")


def listed(
    planner: Planner, service: Service, now: Instant, states: Collection[State] = (), node: str = ""
) -> IncidentList:
    """Incidents, worst first. states: which, all but what is resolved where empty. node: of which, by name;
    of all where empty.
    """
    wanted = states or frozenset(State) - {State.RESOLVED}
    uid = planner.roster.uid(node) if node else ""
    found = [
        one
        for one in (_of_node(planner, uid) if node else every(planner))
        # What is a part of another is told there.
        if one.state in wanted and (node or states or not one.parent)
    ]
    found.sort(key=lambda one: _rank(one, service))
    lines = tuple(line(planner, one, service, now) for one in found[:MOST])
    return IncidentList(VERSION, rfc3339(now.wall), lines, len(found) - len(lines))


def outstanding(planner: Planner, service: Service, now: Instant, most: int) -> tuple[IncidentLine, ...]:
    """The few incidents that stand out, worst first: of those of one check and health, the worst alone."""
    found = sorted(
        (one for one in every(planner) if one.is_open and not one.parent),
        key=lambda one: _rank(one, service),
    )
    kinds = Counter((one.cause, one.health) for one in found)
    first: dict[tuple[str, Health], Incident] = {}
    for one in found:
        first.setdefault((one.cause, one.health), one)
    worst = sorted(first, key=lambda kind: (*_rank(first[kind], service)[:3], -kinds[kind]))
    return tuple(
        replace(line(planner, first[kind], service, now), alike=kinds[kind] - 1) for kind in worst[:most]
    )


def incident(planner: Planner, service: Service, name: str, now: Instant) -> IncidentPage | None:
    """One incident in full; None where there is none of that name."""
    one = next((one for one in every(planner) if one.name == name), None)
    if one is None:
        return None
    until = _until(planner, one, now)
    decided = service.decisions.get(name, _NOBODY)
    return IncidentPage(
        version=VERSION,
        at=rfc3339(now.wall),
        name=one.name,
        node=one.node,
        domain=one.domain,
        resource=one.resource,
        scope=one.scope,
        part=one.part,
        cause=one.cause,
        word=one.word,
        health=one.health,
        action=one.action,
        state=one.state,
        since=rfc3339(one.since),
        age=age(now, one.since),
        changed=rfc3339(one.changed),
        changed_age=age(now, one.changed),
        resolved=rfc3339(one.resolved) if one.resolved else "",
        times=one.times,
        message=one.message,
        detail=_detail(planner, one),
        symptoms=tuple(
            SymptomTold(each.check, each.target, each.health, each.message, each.evidence)
            for each in one.symptoms
        ),
        marks=tuple(
            mark for mark in marks(planner, one.uid, now) if resource_of(mark.target) == one.resource
        ),
        acknowledged=decided.acknowledged,
        clear=decided.clear,
        answer=decided.answer,
        answer_says=decided.answer_says,
        until=rfc3339(until) if until else "",
        left=round(max(0.0, until - now.wall), 1),
    )


def every(planner: Planner) -> Iterator[Incident]:
    """Yield all incidents as they are now, pending ones and those that are over among them."""
    for uid in planner.incidents.keys() | planner.pending.keys():
        yield from _of_node(planner, uid)


def _of_node(planner: Planner, uid: str) -> Iterable[Incident]:
    """Return the incidents of a node, of domains and checks where the uid is empty."""
    return {**planner.incidents.get(uid, {}), **planner.pending.get(uid, {})}.values()


def line(planner: Planner, one: Incident, service: Service, now: Instant) -> IncidentLine:
    """An incident in short."""
    until = _until(planner, one, now)
    return IncidentLine(
        name=one.name,
        node=one.node,
        resource=one.resource,
        cause=one.cause,
        health=one.health,
        state=one.state,
        since=rfc3339(one.since),
        age=age(now, one.since),
        scope=one.scope,
        says=_says(one, _detail(planner, one)),
        acknowledged=service.decisions.get(one.name, _NOBODY).acknowledged,
        domain=one.domain,
        until=rfc3339(until) if until else "",
        left=round(max(0.0, until - now.wall), 1),
    )


def _outcomes(planner: Planner, one: Incident) -> Iterator[Outcome]:
    """Yield the decisions that an incident of a node shows."""
    for outcome in planner.outcomes.get(one.uid, ()) if one.uid else ():
        if outcome.state == one.state and resource_of(outcome.want.target) == one.resource:
            yield outcome


def _until(planner: Planner, one: Incident, now: Instant) -> float:
    """Return when the grace period of a pending incident ends; 0 for any other."""
    if one.state != State.PENDING:
        return 0.0
    ends = [outcome.until for outcome in _outcomes(planner, one)]
    seat, report = planner.roster.seats.get(one.uid), planner.heard.get(one.uid)
    if not ends and seat is not None and report is not None:
        return unconfirmed_until(seat, report, planner.policy, now.wall).get(one.resource, 0.0)
    return min(ends, default=0.0)


def _detail(planner: Planner, one: Incident) -> str:
    """Return why an incident is in its state: of a withheld mark in the words of the latest plan, since the
    used amount of a budget changes without a change of the incident.
    """
    if one.state != State.WITHHELD:
        return one.detail
    return next((outcome.why for outcome in _outcomes(planner, one) if outcome.why), one.detail)


def _says(one: Incident, detail: str) -> str:
    """Return what is wrong; of an incident of many nodes the evidence, and why nothing is done about it."""
    if one.node:
        return detail or one.message
    why = detail if one.state in {State.WITHHELD, State.RESOLVED} else ""
    return "; ".join(filter(None, (one.message, why)))


def _rank(one: Incident, service: Service) -> tuple[bool, int, int, float, str]:
    """Its place among all: what a person knows of comes last; of those that are alike, the newest first."""
    known = service.decisions.get(one.name, _NOBODY).acknowledged != ""
    return (
        known or one.state == State.RESOLVED,
        -one.health.rank,
        _ORDER.index(one.state),
        -one.since,
        one.name,
    )
