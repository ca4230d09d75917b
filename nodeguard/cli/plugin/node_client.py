"""Nodes as they are in the cluster, with their incidents: the answers of the aggregator's API about marks,
for a user who may not run commands in pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from msgspec import Raw, Struct
from msgspec.structs import replace

from nodeguard.aggregator.clock import current_instant
from nodeguard.cli.aggregator_client import NotFoundError
from nodeguard.cli.plugin.cluster import ROLES, ask, missing_right
from nodeguard.cli.plugin.incident_client import IncidentClient, Objects, object_named, read_objects
from nodeguard.cli.plugin.options import ClusterOptions
from nodeguard.cli.plugin.pod import ADMIN_ROLE, missing_exec
from nodeguard.cli.usage import UsageError
from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.executors.owners import NodeOwners, OwnedNodes
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.unreported import describe_unreported, list_unreported
from nodeguard.kube import device_rules, nodes
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.errors import decoded
from nodeguard.kube.node_patch import HEALTHY_CONDITION
from nodeguard.kube.reading import Right, has_right, list_objects
from nodeguard.model.label_selector import SelectorError, parse_label_selector
from nodeguard.model.mark import STATE_ANNOTATION
from nodeguard.model.node import Node

_NOT_READ = "health, findings, hardware, budgets, the policy, and what marks wait for"
_HOW = f"{ADMIN_ROLE} gives the right to read them, see {ROLES}"

_Response = TypeVar("_Response", bound=Struct)


class _Cluster(NamedTuple):
    """What the cluster has. rules: None if the user may not read them."""

    nodes: Sequence[Node]
    rules: Sequence[DeviceRule] | None
    objects: Objects


class NodeClient(IncidentClient):
    """Answers as the aggregator's client does, for nodes and incidents."""

    def __init__(self, options: ClusterOptions) -> None:
        super().__init__(options)
        # The policy is not read: a mark counts if its node is cordoned, whether the policy does that or not.
        self._policy = replace(self._policy, marks=replace(self._policy.marks, cordon=True))

    def get(self, target: str, schema: type[_Response]) -> _Response:
        """Return a response. target: as of IncidentClient, `nodes` with a query, or `nodes/NAME`. Raises
        UsageError.
        """
        address = urlsplit(target)
        kind, _, path = address.path.partition("/")
        if kind == "incidents":
            return super().get(target, schema)
        if kind != "nodes":
            raise missing_exec(self._options)
        name, query = unquote(path), parse_qs(address.query)
        try:
            selector = parse_label_selector(query.get("selector", [""])[0])
        except SelectorError as error:
            raise UsageError(str(error)) from None
        cluster = ask(self._options, partial(_read, self._options, name))
        now = current_instant()
        planner, decisions = self._restored(cluster.objects)
        service = ServiceState("", is_leader=False, started=now.mono, decisions=decisions)
        observed = _observed(cluster)
        reported = {incident.uid for incident in planner.all_incidents()}
        for node in cluster.nodes:
            planner.update_node(*observed.update_node(node))
            if node.uid in reported:
                planner.state.add_agent(node.uid)
        marks = "" if cluster.rules is not None else ", marks of GPUs"
        not_read = f"{_NOT_READ}{marks}: {_HOW}"
        response: Struct | None
        if name:
            condition = _condition(cluster.nodes[0]) if cluster.nodes else ""
            response = describe_unreported(planner, service, name, now, self._checks, not_read, condition)
        else:
            response = list_unreported(planner, service, now, not_read, selector)
        if not isinstance(response, schema):
            raise NotFoundError(f"there is no node '{name}': see nodeguard get nodes")
        return response


def _observed(cluster: _Cluster) -> ObservedCluster:
    """Return the observed cluster with its rules. The owner of a node is the webhook that has accepted its
    marks.
    """
    owned = list[tuple[str, OwnedNodes]]()
    for node in cluster.nodes:
        record = decode_record(node.annotations.get(STATE_ANNOTATION, ""))
        if record is not None and record.accepted is not None:
            owned.append((record.accepted.webhook, OwnedNodes(node.name)))
    observed = ObservedCluster(NodeOwners(owned))
    for rule in cluster.rules or ():
        observed.update_rule(rule)
    return observed


def _condition(node: Node) -> str:
    """Return the condition NodeguardHealthy as text; empty for none."""
    condition = node.condition
    if condition is None:
        return ""
    return f"{HEALTHY_CONDITION} is {condition.status}, {condition.reason}: {condition.short_message}"


async def _read(options: ClusterOptions, name: str, client: ApiClient) -> _Cluster:
    """Read a Node, or all if the name is empty, with device rules and incidents. Raises UsageError and
    ApiError.
    """
    try:
        if name:
            objects = await object_named(client, nodes.PATH, name)
        else:
            objects = [item async for item in list_objects(client, nodes.PATH, Raw)]
    except ApiError as error:
        if error.status == 403:
            # It raises the reason where the caller may not impersonate the user.
            await has_right(client, Right("list", "", "nodes", ""))
            raise missing_right(options, "read Nodes", "the ClusterRole nodeguard-viewer") from None
        raise
    read = [decoded(nodes.decode_node, bytes(item), "a Node") for item in objects]
    return _Cluster(read, await _rules(client), await read_objects(options, "", client))


async def _rules(client: ApiClient) -> list[DeviceRule] | None:
    """Return the device rules of nodeguard, none where the cluster has no such objects; None if the user may
    not read them. Raises ApiError.
    """
    label = quote(f"{device_rules.MANAGED_BY_LABEL}={device_rules.MANAGER}", safe="")
    path = f"{device_rules.PATH}?labelSelector={label}"
    try:
        objects = [item async for item in list_objects(client, path, Raw)]
    except ApiError as error:
        if error.status in {403, 404}:
            return None if error.status == 403 else []
        raise
    return [decoded(device_rules.decode_rule, bytes(item), "a DeviceTaintRule").rule for item in objects]
