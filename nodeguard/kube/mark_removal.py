"""Removal of all marks through the API server, without an aggregator: before nodeguard is uninstalled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Struct

from nodeguard.executors.kube.desired import foreign_taints, is_unmarked, unmarked_node
from nodeguard.kube import device_rules, nodes
from nodeguard.kube.client import MERGE_PATCH, ApiClient, Query
from nodeguard.kube.errors import ApiError
from nodeguard.kube.lease import LEASE_SECONDS, Lease
from nodeguard.kube.node_patch import mark_patch
from nodeguard.kube.unmark import remove_condition
from nodeguard.kube.watch import PagedList
from nodeguard.model.node import Node

# Rounds over all objects, and seconds between two. A round that finds marks is repeated.
_ROUNDS = 20
_PAUSE = 0.5

# Nodes after which the lease is taken again: a large fleet may take longer than the lease lasts.
_RENEW_AFTER = 500


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
    """Remove nodeguard's own taints, annotations, conditions, cordons and rules; return their objects.

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
        if not is_unmarked(node):
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
            await api.request("PATCH", f"{nodes.PATH}/{node.name}", body=patch, content_type=MERGE_PATCH)
        await remove_condition(api, node)
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


async def _listed_nodes(api: ApiClient) -> AsyncIterator[Node]:
    async for item in PagedList(api, nodes.PATH).items():
        yield nodes.decode_node(item)


async def _listed_rules(api: ApiClient) -> AsyncIterator[device_rules.ObservedRule]:
    selector: Query = {"labelSelector": f"{device_rules.MANAGED_BY_LABEL}={device_rules.MANAGER}"}
    try:
        async for item in PagedList(api, device_rules.PATH, selector).items():
            yield device_rules.decode_rule(item)
    except ApiError as error:
        # Before Kubernetes 1.37 there are no such rules.
        if error.status != 404:
            raise
