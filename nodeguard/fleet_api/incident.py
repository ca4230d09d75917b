"""Views of incidents, from the plan: the list, worst first, and one incident in full. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import resource_of
from nodeguard.fleet.diagnosis.results import CHECK, clearing_time
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.domain import class_guidance, with_end
from nodeguard.fleet_api.job_outcomes import job_outcomes, rejected_pods_view
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.reasons import short_reason
from nodeguard.fleet_api.recovery import incident_commands, remedy
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView, SymptomView
from nodeguard.fleet_api.schema.incident_summary import EndedFaultView, IncidentSummary, StateGroup
from nodeguard.fleet_api.schema.status import VERSION
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.fleet_api.text.phrases import subject_noun
from nodeguard.judge.formatting import format_duration
from nodeguard.model.check import Check
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.job import limit_jobs
from nodeguard.model.mark import Mark
from nodeguard.model.natural_order import NaturalOrder, natural_order
from nodeguard.model.projection import project

# What people do about a suppressed check, as the runbook of NodeguardCheckSuppressed.
_SUPPRESSED_CHECK = Guidance(
    owner="the team that runs the nodes",
    first="What these nodes got before: driver, agent or catalogue. Roll it back if the check is wrong.",
    nodes="Leave them in service. If another source confirms the fault, cordon as many as the work allows.",
    end="The check fires on only a few nodes.",
)

# Limit of a response.
MAX_INCIDENTS = 1000

# Order of incidents of equal health: nodes that still take work come first.
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
_NO_DECISION = OperatorDecision("")

# Names of nodes in a group of one state.
_GROUP_NAMES = 3


def list_incidents(
    planner: Planner,
    service: ServiceState,
    now: Instant,
    states: Collection[IncidentState] = (),
    node: str = "",
) -> IncidentList:
    """Return incidents, worst first.

    states: which; all unresolved ones where empty. node: name of the node; of all nodes where empty.
    """
    incidents = select_incidents(planner, service, states, node)
    summaries = tuple(
        summarize_incident(planner, incident, service, now) for incident in incidents[:MAX_INCIDENTS]
    )
    return IncidentList(VERSION, rfc3339(now.wall), summaries, len(incidents) - len(summaries))


def select_incidents(
    planner: Planner,
    service: ServiceState,
    states: Collection[IncidentState] = (),
    node: str = "",
    check: str = "",
) -> list[Incident]:
    """Return incidents, worst first. states, node: as of list_incidents. check: the cause, any if empty."""
    selected = states or frozenset(IncidentState) - {IncidentState.RESOLVED}
    uid = planner.state.uid(node) if node else ""
    incidents = [
        incident
        for incident in (_of_node(planner, uid) if node else all_incidents(planner))
        # An incident that belongs to a domain is reported under the domain.
        if incident.state in selected
        and (node or states or not incident.parent)
        and (not check or incident.cause == check)
    ]
    return sorted(incidents, key=lambda incident: _rank(incident, service))


def worst_incidents(
    planner: Planner, service: ServiceState, now: Instant, limit: int
) -> tuple[tuple[IncidentSummary, ...], int]:
    """Return the worst unresolved incidents in groups, and the number of further groups."""
    groups = group_incidents(planner, service, now, select_incidents(planner, service))
    return groups[:limit], max(0, len(groups) - limit)


def group_incidents(
    planner: Planner, service: ServiceState, now: Instant, incidents: Iterable[Incident]
) -> tuple[IncidentSummary, ...]:
    """Return incidents in groups, the worst first: of those with the same check and health only the worst,
    with the jobs of all and the start of the oldest, and those of injected faults apart. incidents: worst
    first.
    """
    kinds: dict[_Kind, list[Incident]] = {}
    for incident in incidents:
        kinds.setdefault(_kind(incident), []).append(incident)
    worst = sorted(kinds, key=lambda kind: (*_rank(kinds[kind][0], service)[:4], -len(kinds[kind])))
    nodes = {kind: frozenset(incident.node for incident in kinds[kind]) for kind in worst}
    groups = []
    for position, kind in enumerate(worst):
        jobs, jobs_omitted = _jobs(kinds[kind])
        first_seen = min(incident.first_seen for incident in kinds[kind])
        groups.append(
            replace(
                summarize_incident(planner, kinds[kind][0], service, now),
                since=rfc3339(first_seen),
                age=age(now, first_seen),
                similar=len(kinds[kind]) - 1,
                groups=_state_groups(planner, kinds[kind]) if len(kinds[kind]) > 1 else (),
                earlier=_earlier(kind, worst[:position], nodes),
                jobs=jobs,
                jobs_omitted=jobs_omitted,
            )
        )
    return tuple(groups)


def _jobs(incidents: Sequence[Incident]) -> tuple[tuple[str, ...], int]:
    """Return the jobs of incidents, and how many more there are at least: those that incidents omit may be
    the same ones.
    """
    names, omitted = limit_jobs(job for incident in incidents for job in incident.jobs)
    return names, omitted + max(incident.jobs_omitted for incident in incidents)


def _earlier(kind: _Kind, before: Iterable[_Kind], nodes: Mapping[_Kind, Set[str]]) -> tuple[Health, ...]:
    """Return the healths of kinds of incidents of several nodes, the node of this kind among them. Empty for
    a kind of several nodes. nodes: by kind; an empty name is of a domain or a check.
    """
    if len(nodes[kind]) > 1 or "" in nodes[kind]:
        return ()
    # A rehearsal is no fault.
    return tuple(
        other.health
        for other in before
        if other.injected == kind.injected and len(nodes[other]) > 1 and nodes[kind] <= nodes[other]
    )


def _state_groups(planner: Planner, incidents: Sequence[Incident]) -> tuple[StateGroup, ...]:
    """Return the nodes of similar incidents by state and reason, those that still take work first."""
    nodes: dict[tuple[IncidentState, str, Mark | None], dict[str, None]] = {}
    for incident in incidents:
        reasons = (short_reason(decision) for decision in _decisions(planner, incident))
        reason = next(filter(None, reasons), "")
        key = incident.state, reason, incident.mark
        nodes.setdefault(key, {})[incident.node or incident.domain or incident.target] = None
    order = sorted(nodes, key=lambda key: (_ORDER.index(key[0]), -len(nodes[key])))
    return tuple(
        StateGroup(state, reason, mark, len(nodes[key]), tuple(nodes[key])[:_GROUP_NAMES])
        for key in order
        for state, reason, mark in [key]
    )


class _Kind(NamedTuple):
    cause: str
    health: Health
    injected: bool
    subject: str


def _kind(incident: Incident) -> _Kind:
    subject = subject_noun(incident.node, incident.domain, incident.target)
    return _Kind(incident.cause, incident.health, incident.injected, subject)


def describe_incident(
    planner: Planner,
    service: ServiceState,
    name: str,
    now: Instant,
    checks: Mapping[str, Check] | None = None,
) -> IncidentView | None:
    """Return an incident in full by its name; None if no incident has it. checks: for commands."""
    incident = next((incident for incident in all_incidents(planner) if incident.name == name), None)
    if incident is None:
        return None
    decision = service.decisions.get(name, _NO_DECISION)
    return project(
        IncidentView,
        incident,
        **_shown(planner, incident, decision, now),
        version=VERSION,
        at=rfc3339(now.wall),
        last_transition=rfc3339(incident.last_transition),
        last_transition_age=age(now, incident.last_transition),
        resolved_at=rfc3339(incident.resolved_at) if incident.resolved_at else "",
        reason=_reason(planner, incident),
        symptoms=tuple(project(SymptomView, symptom) for symptom in incident.symptoms),
        marks=tuple(
            mark
            for mark in marks_of_node(planner, incident.uid, now)
            if resource_of(mark.target) == incident.target and mark.injected == incident.injected
        ),
        clear_request=decision.clear,
        clear_result=decision.answer,
        clear_message=decision.answer_message,
        false_alarm=decision.false_alarm,
        how=incident_commands(planner, incident, now, checks or {}),
        remedy="" if incident.injected else remedy(incident.cause, incident.action, checks or {}),
        rejected_pods=rejected_pods_view(service, incident.uid, now)
        if incident.is_open and incident.health == Health.FATAL and not incident.injected
        else None,
        job_outcomes=job_outcomes(
            incident.jobs,
            incident.uid,
            service,
            now,
            since=incident.first_seen,
            until=incident.resolved_at or inf,
        ),
    )


def _shown(planner: Planner, incident: Incident, decision: OperatorDecision, now: Instant) -> dict[str, Any]:
    """Return the fields that an incident in full and an item of a list have, and that the plan gives."""
    until = _until(planner, incident)
    return {
        "resource": incident.target,
        "since": rfc3339(incident.first_seen),
        "age": age(now, incident.first_seen),
        "acknowledged": decision.acknowledged,
        "until": rfc3339(until) if until else "",
        "seconds_left": round(max(0.0, until - now.wall), 1),
        "guidance": _guidance(planner, incident),
    }


def _guidance(planner: Planner, incident: Incident) -> Guidance | None:
    """Return what people do about an open incident of a degraded domain or a suppressed check; None for
    another incident. The reason of a domain's incident has when nodeguard ends it.
    """
    if not incident.is_open:
        return None
    if incident.target.startswith(CHECK):
        rule, suppressed = planner.diagnosis.rule, planner.diagnosis.suppressed_checks.get(incident.cause)
        times, within = (suppressed.times, suppressed.within) if suppressed else (1, 0.0)
        wait = format_duration(max(clearing_time(rule, times), within))
        advice = with_end(_SUPPRESSED_CHECK, f"{wait} later by itself")
        return replace(advice, end=f"{advice.end} nodeguard incidents clear {incident.name} ends it at once.")
    return class_guidance(planner, (incident.cause,)) if incident.domain else None


def latest_end(
    planner: Planner, decisions: Mapping[str, OperatorDecision], now: Instant
) -> EndedFaultView | None:
    """Return the real fault that ended last; None if none is recorded. decisions: of operators, by incident;
    a recorded false alarm is no fault.
    """
    ended = [
        incident
        for incident in all_incidents(planner)
        if incident.is_fault and not (incident.is_open or incident.injected)
    ]
    faults = (incident for incident in ended if not decisions.get(incident.name, _NO_DECISION).is_false_alarm)
    latest = max(faults, key=lambda incident: incident.resolved_at, default=None)
    if latest is None:
        return None
    return project(
        EndedFaultView,
        latest,
        incident=latest.name,
        resource=latest.target,
        resolved_at=rfc3339(latest.resolved_at),
        age=age(now, latest.resolved_at),
    )


def all_incidents(planner: Planner) -> Iterator[Incident]:
    """Yield all current incidents, pending and resolved ones included."""
    for uid in planner.tracker.recorded.by_uid.keys() | planner.tracker.pending.keys():
        yield from _of_node(planner, uid)


def _of_node(planner: Planner, uid: str) -> Iterable[Incident]:
    """Return the incidents of a node; those of domains and checks where the uid is empty."""
    return {**planner.tracker.recorded.by_uid.get(uid, {}), **planner.tracker.pending.get(uid, {})}.values()


def summarize_incident(
    planner: Planner, incident: Incident, service: ServiceState, now: Instant
) -> IncidentSummary:
    """Return an incident as an item of a list."""
    return project(
        IncidentSummary,
        incident,
        **_shown(planner, incident, service.decisions.get(incident.name, _NO_DECISION), now),
        summary=_summary(incident, _reason(planner, incident)),
    )


def _decisions(planner: Planner, incident: Incident) -> Iterator[MarkDecision]:
    """Yield the decisions that an incident of a node shows."""
    for decision in planner.tracker.decisions.get(incident.uid, ()) if incident.uid else ():
        request = decision.request
        subject = resource_of(request.target), request.injected
        if decision.state == incident.state and subject == (incident.target, incident.injected):
            yield decision


def _until(planner: Planner, incident: Incident) -> float:
    """Return when the grace period of a pending incident ends; 0 for any other."""
    if incident.state != IncidentState.PENDING:
        return 0.0
    ends = [decision.until for decision in _decisions(planner, incident)]
    subject = incident.target, incident.injected
    return min(ends, default=planner.tracker.grace_end(incident.uid, subject))


def _reason(planner: Planner, incident: Incident) -> str:
    """Return why an incident is in its state: for a withheld mark the reason of the latest plan, since the
    used amount of a budget changes without a change of the incident.
    """
    if incident.state != IncidentState.WITHHELD:
        return incident.detail
    return next(
        (decision.reason for decision in _decisions(planner, incident) if decision.reason), incident.detail
    )


def _summary(incident: Incident, reason: str) -> str:
    """Return the problem; for an incident of many nodes the evidence, and the reason why no mark is set."""
    if incident.node:
        return reason or incident.message
    shown_reason = reason if incident.state in {IncidentState.WITHHELD, IncidentState.RESOLVED} else ""
    return "; ".join(filter(None, (incident.message, shown_reason)))


def _rank(incident: Incident, service: ServiceState) -> tuple[bool, bool, int, int, float, NaturalOrder]:
    """Return the sort key: acknowledged incidents come last, and those of injected faults before them; among
    equal ones the newest comes first.
    """
    acknowledged = service.decisions.get(incident.name, _NO_DECISION).acknowledged != ""
    return (
        acknowledged or incident.state == IncidentState.RESOLVED,
        incident.injected,
        -incident.health.rank,
        _ORDER.index(incident.state),
        -incident.first_seen,
        natural_order(incident.name),
    )
