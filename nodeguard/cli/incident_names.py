"""Resolution of incident names: operators may write a prefix, NODE, or NODE/CHECK in place of a name."""

from __future__ import annotations

from nodeguard.cli.aggregator_client import AggregatorClient, NotFoundError, quote_name
from nodeguard.cli.usage import UsageError, did_you_mean
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.status import IncidentSummary

_SHOWN = 8


def resolve_incident(client: AggregatorClient, text: str) -> str:
    """Return the name of the incident that a text stands for. Raises UsageError, NotFoundError for none."""
    try:
        return client.get(f"incidents/{quote_name(text)}", IncidentView).name
    except NotFoundError:
        incidents = client.get("incidents?state=all", IncidentList).incidents
    matches = matching_incidents(incidents, text)
    if len(matches) == 1:
        return matches[0].name
    if matches:
        names = ", ".join(incident.name for incident in matches[:_SHOWN])
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise UsageError(f"'{text}' matches several incidents: {names}{more}: write one of these names")
    hint = did_you_mean(text, [incident.name for incident in incidents])
    raise NotFoundError(f"incident '{text}' not found: {hint}see nodeguard get incidents --all")


def matching_incidents(incidents: tuple[IncidentSummary, ...], text: str) -> list[IncidentSummary]:
    """Return the incidents that a text stands for: unresolved ones first where both kinds match."""
    matches = [incident for incident in incidents if _matches(incident, text)]
    unresolved = [incident for incident in matches if incident.state.slug != "resolved"]
    return unresolved or matches


def _matches(incident: IncidentSummary, text: str) -> bool:
    subject = incident.node or incident.domain
    return bool(text) and (
        incident.name.startswith(text)
        or text in {subject, f"{subject}/{incident.cause}", f"{subject}/{incident.resource}"}
    )
