"""Incidents as NodeIncidents record them: the answers of the aggregator's API, without an aggregator, and
decisions about incidents in their spec.

A NodeIncident has no grace periods, no latest reason of a withheld mark, and not what a mark waits for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Raw, Struct

from nodeguard.aggregator.api.decisions import IncidentDecisions
from nodeguard.aggregator.api.requests import ActionResult, IncidentAction
from nodeguard.aggregator.api.responses import RefusedError
from nodeguard.aggregator.backends.kubernetes_actions import KubernetesOperatorActions
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.clock import current_instant
from nodeguard.cli.aggregator_client import NotFoundError
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.plugin.cluster import ask, missing_right
from nodeguard.cli.plugin.options import ClusterOptions
from nodeguard.cli.plugin.pod import has_exec
from nodeguard.cli.usage import UsageError
from nodeguard.fleet.act.clears import with_answers
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.unreported import UNRESOLVED
from nodeguard.kube.action_object import decode_action
from nodeguard.kube.action_store import actions_path
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.errors import decoded
from nodeguard.kube.incident_object import API_VERSION, ObservedIncident, decode_incident
from nodeguard.kube.incident_projection import to_incident
from nodeguard.kube.reading import Right, get_object, has_right, list_objects
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.policy import default_policy

_GROUP = "nodeguard.dev"
# A name of an object; a person may write something else, such as NODE/CHECK.
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")

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
        objects = ask(self._options, partial(read_objects, self._options, name))
        now = current_instant()
        planner, decisions = self._restored(objects, node)
        service = ServiceState("", is_leader=False, started=now.mono, decisions=decisions)
        response: Struct | None
        if name:
            response = describe_incident(planner, service, name, now, self._checks)
        else:
            states = _states(query.get("state", []))
            # Of a node also those that belong to the incident of a domain.
            response = list_incidents(planner, service, now, states or (UNRESOLVED if node else ()))
        if not isinstance(response, schema):
            raise NotFoundError(f"incident '{name}' not found: see nodeguard get incidents --all")
        return response

    def post(self, target: str, body: IncidentAction) -> ActionResult:
        """Record a decision in the spec of an incident; return its outcome. target: `incidents/NAME`. Raises
        UsageError.
        """
        name = unquote(target.partition("/")[2])
        return ask(self._options, partial(self._decide, name, body))

    async def _decide(self, name: str, wanted: IncidentAction, client: ApiClient) -> ActionResult:
        planner, recorded = self._restored(await read_objects(self._options, name, client))
        # It records decisions about incidents only.
        actions = KubernetesOperatorActions(client, self._options.namespace, lambda _: None, lambda _: ())
        decisions = IncidentDecisions(planner, actions, recorded, current_instant().wall)
        try:
            return ActionResult(await decisions.carry_out(name, wanted))
        except (RefusedError, OperatorActionError) as error:
            raise UsageError(str(error)) from None

    def _restored(self, objects: Objects, node: str = "") -> tuple[Planner, Mapping[str, OperatorDecision]]:
        """Return a planner with the incidents of a node, or of all, and the decisions with their answers."""
        incidents = [incident for item in objects.incidents if (incident := to_incident(item)) is not None]
        planner = Planner(self._policy, self._checks)
        planner.restore_incidents(item for item in incidents if node in {"", item.node})
        decisions = {item.name: item.decision for item in objects.incidents}
        if objects.actions is None:
            return planner, decisions
        return planner, with_answers(decisions, objects.actions, planner.incident)


def may_decide_in_pod(options: ClusterOptions) -> bool:
    """Return whether a decision about an incident is made in the pod of the leader, which knows more; else
    the user records it in the NodeIncident. Raises UsageError where the user may do neither.
    """
    return ask(options, partial(_may_decide_in_pod, options))


async def _may_decide_in_pod(options: ClusterOptions, client: ApiClient) -> bool:
    if await has_exec(options, client):
        return True
    if await has_right(client, Right("patch", _GROUP, "nodeincidents", "")):
        return False
    raise missing_right(options, "decide about incidents", "the ClusterRole nodeguard-operator")


def _states(names: list[str]) -> frozenset[IncidentState]:
    """Return states by name; `all` for all of them."""
    return frozenset(state for state in IncidentState if {"all", state.slug} & set(names))


class Objects(NamedTuple):
    """What the cluster has. actions: None where none is needed, or the user may not read them."""

    incidents: Sequence[ObservedIncident]
    actions: Sequence[NodeAction] | None


async def read_objects(options: ClusterOptions, name: str, client: ApiClient) -> Objects:
    """Read an incident, or all if the name is empty, and the answers to clears. Raises UsageError and
    ApiError.
    """
    incidents = await _incidents(options, name, client)
    if not any(item.decision.clear for item in incidents):
        return Objects(incidents, None)
    try:
        seen = [
            decode_action(item) async for item in list_objects(client, actions_path(options.namespace), Raw)
        ]
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        return Objects(incidents, None)
    return Objects(incidents, [item.action for item in seen if item.action is not None])


async def _incidents(options: ClusterOptions, name: str, client: ApiClient) -> list[ObservedIncident]:
    path = f"/apis/{API_VERSION}/nodeincidents"
    try:
        if name:
            objects = await object_named(client, path, name)
        else:
            objects = [item async for item in list_objects(client, path, Raw)]
        return [decoded(decode_incident, bytes(item), "a NodeIncident") for item in objects]
    except ApiError as error:
        if error.status == 403:
            # It raises the reason where the caller may not impersonate the user.
            await has_right(client, Right("list", _GROUP, "nodeincidents", ""))
            raise missing_right(options, "list NodeIncidents", "the ClusterRole nodeguard-viewer") from None
        if error.status == 404:
            raise UsageError(
                "this cluster has no NodeIncidents: install nodeguard there, or set --context"
            ) from None
        raise


async def object_named(client: ApiClient, path: str, name: str) -> list[Raw]:
    """Return the object of a name below a path, as a list; empty if there is none. Raises ApiError."""
    if not _NAME.fullmatch(name):
        return []
    try:
        return [await get_object(client, f"{path}/{name}", Raw)]
    except ApiError as error:
        if error.status == 404:
            return []
        raise
