"""Removal of all marks through the API server, without an aggregator: before nodeguard is uninstalled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.executors.kube.desired import foreign_taints, is_unmarked, unmarked_node
from nodeguard.executors.kube.drain_conditions import own_drain_conditions
from nodeguard.fleet.incidents.events import resolve
from nodeguard.kube import device_rules, incident_writer, nodes
from nodeguard.kube.client import MERGE_PATCH, ApiClient, Query
from nodeguard.kube.errors import ApiError
from nodeguard.kube.incident_object import ObservedIncident, decode_incident, observed_status, status_patch
from nodeguard.kube.incident_projection import incident_status, to_incident
from nodeguard.kube.lease import Lease
from nodeguard.kube.lease_record import LEASE_SECONDS
from nodeguard.kube.node_patch import mark_patch
from nodeguard.kube.unmark import remove_conditions
from nodeguard.kube.watch import PagedList
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.node import Node

# Rounds over all objects, and seconds between two. A round that finds marks is repeated.
_ROUNDS = 20
_PAUSE = 0.5

# Nodes after which the lease is taken again: a large fleet may take longer than the lease lasts.
_RENEW_AFTER = 500

# Why the mark of an incident is not set, or no longer.
_REMOVED = "all marks were removed, without an aggregator"


class MarkRemovalError(Exception):
    """Marks are left. The message has the reason and the remedy."""


class RemovedMarks(Struct, frozen=True):
    """Names of the Nodes and of the DeviceTaintRules from which marks were removed. foreign: of Nodes with
    taints that others set under nodeguard's prefix, which stay.
    """

    nodes: tuple[str, ...]
    rules: tuple[str, ...]
    foreign: tuple[str, ...] = ()


async def remove_all_marks(
    api: ApiClient, lease: Lease, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> RemovedMarks:
    """Remove nodeguard's own taints, annotations, conditions, cordons and rules; return their objects. Then
    write that no incident is marked.

    lease: of the aggregators. It is taken from its holder, so that no aggregator writes meanwhile, and held
    for its duration after the end. After an error or a cancellation it is released: the aggregators continue.
    sleep: waits for some seconds. Raises ApiError, MarkRemovalError.
    """
    try:
        return await _remove_all_marks(api, lease, sleep)
    except BaseException:
        await lease.release()
        raise


async def _remove_all_marks(
    api: ApiClient, lease: Lease, sleep: Callable[[float], Awaitable[object]]
) -> RemovedMarks:
    if await lease.seize():
        await sleep(LEASE_SECONDS)
    cleared: set[str] = set()
    deleted: set[str] = set()
    foreign: set[str] = set()
    for _ in range(_ROUNDS):
        try:
            is_complete = await _clear_nodes(api, lease, cleared, foreign)
            async for rule in _listed_rules(api):
                is_complete = False
                if await _delete(api, rule):
                    deleted.add(rule.rule.name)
            if is_complete:
                await _unmark_incidents(api, time.time())
        except ApiError as error:
            # The removal of many marks can take longer than the server keeps the version of the list.
            if error.status != 410:
                raise
            is_complete = False
        # Also after the last write: aggregators wait for the duration of the lease from now on.
        await lease.seize()
        if is_complete:
            return RemovedMarks(tuple(sorted(cleared)), tuple(sorted(deleted)), tuple(sorted(foreign)))
        await sleep(_PAUSE)
    raise MarkRemovalError(
        "marks return as soon as they are removed: look for another program that sets them"
    )


async def _clear_nodes(api: ApiClient, lease: Lease, cleared: set[str], foreign: set[str]) -> bool:
    """Remove the marks of all Nodes. Add the names of those that are cleared, and of those with foreign
    taints.

    Returns whether no Node had marks.
    """
    is_complete = True
    async for node in _listed_nodes(api):
        if foreign_taints(node):
            foreign.add(node.name)
        if not is_unmarked(node) or own_drain_conditions(node):
            is_complete = False
            if await _clear(api, node):
                cleared.add(node.name)
                if len(cleared) % _RENEW_AFTER == 0:
                    await lease.seize()
    return is_complete


async def _clear(api: ApiClient, node: Node) -> bool:
    """Remove the marks of a Node. Return whether that succeeded; another writer may have changed the Node."""
    try:
        if (patch := mark_patch(node, unmarked_node(node), 0)) is not None:
            path = f"{nodes.PATH}/{node.name}"
            node = nodes.decode_node(await api.request("PATCH", path, body=patch, content_type=MERGE_PATCH))
        await remove_conditions(api, node)
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
        return False
    return True


async def _delete(api: ApiClient, observed: device_rules.ObservedRule) -> bool:
    """Delete a rule. Return whether that succeeded."""
    body = {"preconditions": {"uid": observed.uid}}
    try:
        await api.request("DELETE", f"{device_rules.PATH}/{observed.rule.name}", body=body)
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
        return False
    return True


async def _unmark_incidents(api: ApiClient, now: float) -> None:
    """Write that the marks of incidents are removed. now: seconds since the epoch."""
    async for observed in _listed_incidents(api):
        incident = to_incident(observed)
        unmarked = unmarked_incident(incident, now) if incident is not None else None
        if unmarked is None:
            continue
        status = observed_status(incident_status(unmarked), observed.status, observed.generation)
        path = f"{incident_writer.PATH}/{observed.name}/status"
        try:
            await api.request("PATCH", path, body=status_patch(status), content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise


def unmarked_incident(incident: Incident, now: float) -> Incident | None:
    """Return a marked incident after the removal of its mark; None for one without a mark. The fault of a
    recovering one is over. now: seconds since the epoch.
    """
    if incident.state == IncidentState.RECOVERING:
        return resolve(incident, now, _REMOVED)
    if incident.state != IncidentState.MARKED:
        return None
    return replace(
        incident, state=IncidentState.WITHHELD, last_transition=now, mark=None, write=None, detail=_REMOVED
    )


async def _listed_nodes(api: ApiClient) -> AsyncIterator[Node]:
    async for item in PagedList(api, nodes.PATH).items():
        yield nodes.decode_node(item)


async def _listed_incidents(api: ApiClient) -> AsyncIterator[ObservedIncident]:
    try:
        async for item in PagedList(api, incident_writer.PATH).items():
            yield decode_incident(item)
    except ApiError as error:
        # Their definition may be deleted.
        if error.status != 404:
            raise


async def _listed_rules(api: ApiClient) -> AsyncIterator[device_rules.ObservedRule]:
    selector: Query = {"labelSelector": f"{device_rules.MANAGED_BY_LABEL}={device_rules.MANAGER}"}
    try:
        async for item in PagedList(api, device_rules.PATH, selector).items():
            yield device_rules.decode_rule(item)
    except ApiError as error:
        # Before Kubernetes 1.37 there are no such rules.
        if error.status != 404:
            raise
