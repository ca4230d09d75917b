"""Incidents as HTML: what is broken, where, since when, what nodeguard did, what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodeguard.aggregator.pages.html import (
    EMPTY,
    Html,
    check_path,
    domain_path,
    element,
    incident_path,
    incidents_path,
    join,
    link,
    node_path,
)
from nodeguard.aggregator.pages.sections import badge, table
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary, StateGroup
from nodeguard.fleet_api.text.incident import effect_text
from nodeguard.fleet_api.text.phrases import (
    STYLES,
    check_name,
    group_text,
    owner_text,
    state_text,
    subject_noun,
    subject_text,
)
from nodeguard.fleet_api.text.wording import api_time, count_noun, target_text
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Action
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import parse_or_zero, rfc3339
from nodeguard.model.job import jobs_text

_HEADERS = ("What is broken", "Where", "Since", "What nodeguard did", "What to do")


def incident_table(incidents: Sequence[IncidentSummary], remedies: Mapping[str, str]) -> Html:
    """Return the table of incidents, in their order. remedies: what to do, by check."""
    if not incidents:
        return element("p", "No incidents.", class_="fine")
    rows = (
        (
            _problem(incident),
            _location(incident),
            _since(incident),
            _effect(incident),
            _remedy(incident, remedies),
        )
        for incident in incidents
    )
    return table(_HEADERS, rows, "incidents")


def _problem(incident: IncidentSummary) -> Html:
    similar = (
        join((" ", link(incidents_path(incident.cause), f"{incident.similar + 1} incidents")))
        if incident.similar
        else EMPTY
    )
    acknowledged = f" (acknowledged: {incident.acknowledged})" if incident.acknowledged else ""
    health = badge(incident.health.value.upper(), incident.health.value)
    name = link(incident_path(incident.name), check_name(incident.cause, injected=incident.injected))
    message = element("span", incident.message or incident.summary, class_="message")
    return join((health, " ", name, acknowledged, similar, message))


def _location(incident: IncidentSummary) -> Html:
    jobs = jobs_text(incident.jobs, incident.jobs_omitted)
    hit = element("span", f"jobs: {jobs}", class_="target") if jobs else EMPTY
    if incident.groups:
        return join((count_noun(sum(group.nodes for group in incident.groups), _noun(incident)), hit))
    if incident.node:
        target = element("span", target_text(incident.resource), class_="target")
        return join((link(node_path(incident.node), incident.node), " ", target, hit))
    if incident.domain:
        return join((link(domain_path(incident.domain), incident.domain), hit))
    return join((subject_text("", "", incident.resource),))


def _noun(incident: IncidentSummary) -> str:
    return subject_noun(incident.node, incident.domain, incident.resource)


def _group_effect(group: StateGroup, incident: IncidentSummary) -> Html:
    """Return how many nodes or domains are in a state, linked to their incidents, and the first of them."""
    path = incidents_path(incident.cause, group.state.slug)
    state = element("span", link(path, group_text(group)), class_=STYLES[group.state])
    path_of = {"node": node_path, "domain": domain_path}.get(_noun(incident))
    names = join(
        join((link(path_of(name), name, class_="name") if path_of else name, " ")) for name in group.names
    )
    rest = group.nodes - len(group.names)
    return element("span", state, ": ", names, f"and {rest} more" if rest else "", class_="message")


def _since(incident: IncidentSummary) -> Html:
    """Return for how long; the time of day, with the date unless it is the same day."""
    since, now = incident.since, rfc3339(parse_or_zero(incident.since) + incident.age)
    day = since[:10]
    at = f"{since[11:16]} UTC" if day == now[:10] else f"{day} {since[11:16]} UTC"
    duration = element("span", at, class_="message dim")
    return element("time", format_duration(incident.age), duration, datetime=since, title=api_time(since))


def _effect(incident: IncidentSummary) -> Html:
    if incident.groups:
        return join(_group_effect(group, incident) for group in incident.groups)
    state = state_text(incident.state, incident.until, incident.seconds_left)
    explained = incident.summary not in {"", incident.message}
    reason = f": {incident.summary}" if explained and incident.node else ""
    return join((element("b", state, class_=STYLES[incident.state]), f", {effect_text(incident)}{reason}"))


def _remedy(incident: IncidentSummary, remedies: Mapping[str, str]) -> Html:
    """Return the action, and the remedy of the check, which is for one node."""
    if incident.state == IncidentState.RESOLVED:
        return join(("nothing: it is over",))
    if (guidance := incident.guidance) is not None:
        owner = element("b", owner_text(guidance))
        return join((owner, element("span", guidance.first, class_="message"), _explained(incident)))
    if incident.action == Action.NONE:
        return join(("nothing ", _explained(incident)))
    action = element("b", f"{incident.action.phrase[:1].upper()}{incident.action.phrase[1:]}")
    remedy = remedies.get(incident.cause, "") if incident.node else ""
    advice = element("span", remedy, class_="message") if remedy else EMPTY
    return join((action, " ", advice, _explained(incident)))


def _explained(incident: IncidentSummary) -> Html:
    """Return the link to the page that explains the check or the fault class; a job has neither."""
    if not (incident.node or incident.domain or incident.groups):
        return EMPTY
    return link(check_path(incident.cause), f"explain {incident.cause}", class_="name")
