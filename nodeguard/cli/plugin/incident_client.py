"""Incidents as NodeIncidents record them: the answers of the aggregator's API, without an aggregator.

A NodeIncident has no grace periods, no latest reason of a withheld mark, and not what a mark waits for.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Raw, Struct

from nodeguard.aggregator.clock import current_instant
from nodeguard.cli.aggregator_client import NotFoundError
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.plugin.cluster import ask, missing_right
from nodeguard.cli.plugin.options import ClusterOptions
from nodeguard.cli.usage import UsageError
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.errors import decoded
from nodeguard.kube.incident_object import API_VERSION, ObservedIncident, decode_incident
from nodeguard.kube.incident_projection import to_incident
from nodeguard.kube.reading import Right, has_right, list_objects
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import default_policy

_UNRESOLVED = frozenset(IncidentState) - {IncidentState.RESOLVED}

_Response = TypeVar("_Response", bound=Struct)


class IncidentClient:
    """Answers as the aggregator's client does, for incidents only. Each answer reads the objects again."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        catalogue, _ = load_catalogue()
        self._checks = {check.id: check for check in catalogue.checks}
        self._policy = default_policy(catalogue.fault_classes)

    def get(self, target: str, schema: type[_Response]) -> _Response:
        """Return a response. target: `incidents` with a query, or `incidents/NAME`. Raises UsageError."""
        address = urlsplit(target)
        name, query = unquote(address.path.partition("/")[2]), parse_qs(address.query)
        node = query.get("node", [""])[0]
        observed = ask(self._options, partial(_read, self._options))
        incidents = [incident for item in observed if (incident := to_incident(item)) is not None]
        planner, now = Planner(self._policy, self._checks), current_instant()
        planner.restore_incidents(item for item in incidents if node in {"", item.node})
        decisions = {item.name: item.decision for item in observed}
        service = ServiceState("", is_leader=False, started=now.mono, decisions=decisions)
        response: Struct | None
        if name:
            response = describe_incident(planner, service, name, now, self._checks)
        else:
            states = _states(query.get("state", []))
            # Of a node also those that belong to the incident of a domain.
            response = list_incidents(planner, service, now, states or (_UNRESOLVED if node else ()))
        if not isinstance(response, schema):
            raise NotFoundError(f"incident '{name}' not found: see nodeguard get incidents --all")
        return response


def _states(names: list[str]) -> frozenset[IncidentState]:
    """Return states by name; `all` for all of them."""
    return frozenset(state for state in IncidentState if {"all", state.slug} & set(names))


async def _read(options: ClusterOptions, client: ApiClient) -> list[ObservedIncident]:
    path = f"/apis/{API_VERSION}/nodeincidents"
    try:
        return [
            decoded(decode_incident, bytes(item), "a NodeIncident")
            async for item in list_objects(client, path, Raw)
        ]
    except ApiError as error:
        if error.status == 403:
            # It raises the reason where the caller may not impersonate the user.
            await has_right(client, Right("list", "nodeguard.dev", "nodeincidents", ""))
            raise missing_right(options, "list NodeIncidents", "the ClusterRole nodeguard-viewer") from None
        if error.status == 404:
            raise UsageError(
                "this cluster has no NodeIncidents: install nodeguard there, or set --context"
            ) from None
        raise
