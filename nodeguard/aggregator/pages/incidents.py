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
    join,
    link,
    node_path,
)
from nodeguard.aggregator.pages.sections import badge, table
from nodeguard.fleet_api.schema.status import IncidentSummary
from nodeguard.fleet_api.text.incident import effect_text
from nodeguard.fleet_api.text.phrases import (
    STYLES,
    api_time,
    check_name,
    state_text,
    subject_text,
    target_text,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import IncidentState

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
        join((" ", link(check_path(incident.cause), f"and {incident.similar} similar")))
        if incident.similar
        else EMPTY
    )
    acknowledged = f" (acknowledged: {incident.acknowledged})" if incident.acknowledged else ""
    health = badge(incident.health.value.upper(), incident.health.value)
    name = link(incident_path(incident.name), check_name(incident.cause, injected=incident.injected))
    message = element("span", incident.message or incident.summary, class_="message")
    return join((health, " ", name, acknowledged, similar, message))


def _location(incident: IncidentSummary) -> Html:
    if incident.node:
        target = element("span", target_text(incident.resource), class_="target")
        return join((link(node_path(incident.node), incident.node), " ", target))
    if incident.domain:
        return link(domain_path(incident.domain), incident.domain)
    return join((subject_text("", "", incident.resource),))


def _since(incident: IncidentSummary) -> Html:
    at = element("span", api_time(incident.since), class_="message dim")
    return element("time", format_duration(incident.age), at, datetime=incident.since)


def _effect(incident: IncidentSummary) -> Html:
    state = state_text(incident.state, incident.until, incident.seconds_left)
    effect = effect_text(incident.state, incident.domain, suspect=incident.health == Health.SUSPECT)
    explained = incident.summary not in {"", incident.message}
    reason = f": {incident.summary}" if explained and incident.node else ""
    return join((element("b", state, class_=STYLES[incident.state]), f", {effect}{reason}"))


def _remedy(incident: IncidentSummary, remedies: Mapping[str, str]) -> Html:
    """Return the action, and the remedy of the check, which is for one node."""
    if incident.state == IncidentState.RESOLVED:
        return join(("nothing: it is over",))
    if incident.action == Action.NONE:
        return join(("nothing",))
    action = element("b", f"{incident.action.phrase[:1].upper()}{incident.action.phrase[1:]}")
    remedy = remedies.get(incident.cause, "") if incident.node else ""
    return join((action, element("span", remedy, class_="message") if remedy else EMPTY))
