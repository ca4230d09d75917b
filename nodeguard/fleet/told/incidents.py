"""Incidents, told: those that are asked for, worst first, and one of them in full. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.told.ages import age
from nodeguard.fleet.told.forms import VERSION, IncidentLine
from nodeguard.fleet.told.incident_forms import IncidentList, IncidentPage, SymptomTold
from nodeguard.fleet.told.marks import marks
from nodeguard.fleet.told.service import Service
from nodeguard.model.finding import Health
from nodeguard.model.incident import Decision, Incident, State
from nodeguard.model.instant import Instant, rfc3339

# Incidents of one answer, at most.
MOST = 1000

# What a person has to look at first, of those that are equally bad: sick and at work, then what is not.
_ORDER = (State.WITHHELD, State.OBSERVED, State.OPEN, State.MARKED, State.RECOVERING, State.RESOLVED)
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
        for one in (planner.incidents.get(uid, {}).values() if node else every(planner))
        if one.state in wanted
    ]
    found.sort(key=lambda one: _rank(one, service))
    lines = tuple(line(one, service, now) for one in found[:MOST])
    return IncidentList(VERSION, rfc3339(now.wall), lines, len(found) - len(lines))


def outstanding(
    incidents: Iterable[Incident], service: Service, now: Instant, most: int
) -> tuple[IncidentLine, ...]:
    """The few incidents that stand out, worst first: of those of one check and health, the worst alone."""
    found = sorted(
        (one for one in incidents if one.state != State.RESOLVED), key=lambda one: _rank(one, service)
    )
    kinds = Counter((one.cause, one.health) for one in found)
    first: dict[tuple[str, Health], Incident] = {}
    for one in found:
        first.setdefault((one.cause, one.health), one)
    worst = sorted(first, key=lambda kind: (*_rank(first[kind], service)[:3], -kinds[kind]))
    return tuple(replace(line(first[kind], service, now), alike=kinds[kind] - 1) for kind in worst[:most])


def incident(planner: Planner, service: Service, name: str, now: Instant) -> IncidentPage | None:
    """One incident in full; None where there is none of that name."""
    one = next((told[name] for told in planner.incidents.values() if name in told), None)
    if one is None:
        return None
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
        detail=one.detail,
        symptoms=tuple(
            SymptomTold(each.check, each.target, each.health, each.message, each.evidence)
            for each in one.symptoms
        ),
        marks=tuple(mark for mark in marks(planner, one.uid, now) if _part(mark.target) == one.resource),
        acknowledged=decided.acknowledged,
        clear=decided.clear,
    )


def every(planner: Planner) -> Iterator[Incident]:
    """All incidents that are remembered."""
    for told in planner.incidents.values():
        yield from told.values()


def line(one: Incident, service: Service, now: Instant) -> IncidentLine:
    """An incident in short."""
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
        says=_says(one),
        acknowledged=service.decisions.get(one.name, _NOBODY).acknowledged,
        domain=one.domain,
    )


def _says(one: Incident) -> str:
    """What is the matter; of what many nodes share the evidence, and why nothing is done about it."""
    if one.node:
        return one.detail or one.message
    why = one.detail if one.state in {State.WITHHELD, State.RESOLVED} else ""
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


def _part(target: str) -> str:
    return target.partition("/nvlink/")[0]
