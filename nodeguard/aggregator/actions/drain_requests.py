"""Drains that an operator requests for one node: recorded as those of the policy, with the operator's name.

The drain runner carries them out by the same rules, whole or not at all. So a request is either refused with
its reason, or recorded with its pods before anything is evicted.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_assessment import Assessment
from nodeguard.aggregator.actions.drain_preview import assess_now, no_drain_reason
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import drain_action, stored_drain
from nodeguard.fleet.drains import node_drain_candidates
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.action_store import ActionStore
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode

logger = logging.getLogger(__name__)


class DrainRefusedError(Exception):
    """No drain was requested. The message has the reason, and the remedy if there is one."""


async def request_drains(
    planner: Planner, cluster: DrainCluster, store: ActionStore, node: InventoryNode, by: str, now: Instant
) -> tuple[NodeAction, ...]:
    """Record the drains of all faulty resources of a node with pods, and return them with those that run
    already. If nothing is left to evict, return those that succeeded in this quarantine. by: name of the
    operator. Raises DrainRefusedError if something keeps the pods of one resource, PodReadError if the API
    server should be asked again, and ActionStoreError.
    """
    policy = planner.policy.drain
    if policy.mode == DrainMode.DISABLED:
        raise DrainRefusedError(
            "drains are disabled, so that the aggregator may not evict: set drain.mode: observe in the "
            "policy, with which it evicts only what you request"
        )
    candidates = node_drain_candidates(planner, node.key, now)
    if not candidates:
        raise DrainRefusedError(no_drain_reason(planner, node))
    stored = [
        action for action in store.actions() if action.kind == ActionKind.DRAIN and action.uid == node.key
    ]
    assessed = list[tuple[DrainCandidate, Assessment]]()
    running, ended, ending = list[NodeAction](), list[NodeAction](), ""
    for candidate in candidates:
        drain = stored_drain(candidate, stored)
        if drain is not None and not drain.state.is_finished:
            running.append(drain)
            continue
        found = await assess_now(cluster, candidate, planner, drain)
        if found.reason:
            raise DrainRefusedError(f"the pods of {node.name} stay: {found.reason}")
        ending = ending or found.ending
        if drain is None:
            assessed.append((candidate, found))
        elif drain.state == ActionState.SUCCEEDED:
            ended.append(drain)
    requested = [await _recorded(store, action) for action in _requested(assessed, stored, by, now)]
    drains = (*running, *requested) or tuple(ended)
    if not drains:
        raise DrainRefusedError(ending or f"no pod uses the faulty hardware of {node.name}")
    return drains


async def _recorded(store: ActionStore, requested: NodeAction) -> NodeAction:
    """Record a drain, and return it as it is stored: another aggregator may have recorded the same before.
    Raises DrainRefusedError if that one has ended, and ActionStoreError.
    """
    await store.reserve(requested)
    stored = next((action for action in store.actions() if action.key == requested.key), requested)
    if stored.state.is_finished:
        raise DrainRefusedError(f"another aggregator has ended the drain {stored.key}: request it again")
    logger.info(
        "drain requested",
        extra={
            "node": stored.node,
            "by": requested.requested_by,
            "pods": len(stored.pods),
            "action": stored.key,
        },
    )
    return stored


def _requested(
    assessed: list[tuple[DrainCandidate, Assessment]], stored: list[NodeAction], by: str, now: Instant
) -> list[NodeAction]:
    """Return the drains of candidates with pods. A set that leaves with another one needs no drain."""
    requested, leaving = list[NodeAction](), set[str]()
    for candidate, found in sorted(assessed, key=lambda pair: -len(pair[1].pods)):
        if found.uids <= leaving:
            continue
        leaving |= found.uids
        attempts = [action.attempt for action in stored if action.request == candidate.request]
        action = drain_action(candidate, found.pods, now.wall, found.groups, by)
        requested.append(replace(action, attempt=max(attempts, default=0) + 1))
    return requested
