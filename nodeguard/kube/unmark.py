"""Removal of all marks of nodeguard from one Node on an operator's request, with a hold of that Node.

An operator's decision is not fenced by the lease: any aggregator carries it out, as kubectl would. The hold
keeps the leader from setting the marks again.
"""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.kube import device_rules, nodes
from nodeguard.kube.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient
from nodeguard.kube.drain_condition_writer import drain_condition_patch
from nodeguard.kube.errors import ApiError, may_have_succeeded
from nodeguard.kube.node_patch import condition_patch, unmark_patch
from nodeguard.model.mark import MarkRecord
from nodeguard.model.node import PREFIX, Node, NodeCondition, Taint

# Attempts to write a Node that other clients change at the same time.
_ATTEMPTS = 5


async def unmark_node(
    api: ApiClient, name: str, rules: Iterable[str], hold: str, record: MarkRecord | None = None
) -> tuple[Taint, ...]:
    """Hold a Node, and remove all marks of nodeguard from it. rules: names of its DeviceTaintRules. hold: the
    reason. record: of the marks, if the API server refuses it. Returns the taints with nodeguard's prefix
    that stay, because no record explains them. Raises ApiError.
    """
    path = f"{nodes.PATH}/{name}"
    lost: ApiError | None = None
    for attempt in range(_ATTEMPTS):
        try:
            node = nodes.decode_node(await api.request("GET", path))
        except ApiError as error:
            raise (lost or error) from None
        patch = unmark_patch(node, hold, record)
        try:
            node = nodes.decode_node(await api.request("PATCH", path, body=patch, content_type=MERGE_PATCH))
            break
        except ApiError as error:
            is_first_lost = lost is None and may_have_succeeded(error)
            if is_first_lost:
                lost = error
            if attempt == _ATTEMPTS - 1 or not (is_first_lost or error.status == 409):
                raise (lost or error) from None
    await remove_conditions(api, node)
    for rule in rules:
        try:
            await api.request("DELETE", f"{device_rules.PATH}/{rule}")
        except ApiError as error:
            if error.status != 404:
                raise
    return tuple(taint for taint in node.taints if taint.key.startswith(PREFIX))


async def remove_conditions(api: ApiClient, node: Node) -> None:
    """Remove nodeguard's conditions from a Node, if it has any. Raises ApiError."""
    path = f"{nodes.PATH}/{node.name}/status"
    if (patch := condition_patch(node, NodeCondition("", ""), 0.0)) is not None:
        response = await api.request("PATCH", path, body=patch, content_type=STRATEGIC_MERGE_PATCH)
        node = nodes.decode_node(response)
    if (patch := drain_condition_patch(node, None, 0.0)) is not None:
        await api.request("PATCH", path, body=patch, content_type=STRATEGIC_MERGE_PATCH)
