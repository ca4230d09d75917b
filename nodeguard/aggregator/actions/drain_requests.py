"""Drains that an operator requests for one node: recorded as those of the policy, with the operator's name.

The drain runner carries them out by the same rules, whole or not at all. So a request is either refused with
its reason, or recorded with its pods before anything is evicted.
"""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_assessment import Assessment
from nodeguard.aggregator.actions.drain_preview import assess_now, no_drain_reason
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import drain_action, stored_drain
from nodeguard.fleet.drains import node_drain_candidates
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.action_store import ActionStore
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode


class DrainRefusedError(Exception):
    """No drain was requested. The message has the reason, and the remedy if there is one."""


async def request_drains(
    planner: Planner, cluster: DrainCluster, store: ActionStore, node: InventoryNode, by: str, now: Instant
) -> tuple[NodeAction, ...]:
    """Record the drains of all faulty resources of a node with pods, and return them with those that run
    already. by: name of the operator. Raises DrainRefusedError if something keeps the pods of one resource,
    and ActionStoreError.
    """
    policy = planner.policy.drain
    if policy.mode == DrainMode.DISABLED:
        raise DrainRefusedError(
            "drains are disabled, so that the aggregator may not evict: set drain.mode: observe in the "
            "policy, with which it evicts only what you request"
        )
    candidates = node_drain_candidates(planner, node.key, now)
    if not candidates:
        raise DrainRefusedError(no_drain_reason(node))
    stored = [
        action for action in store.actions() if action.kind == ActionKind.DRAIN and action.uid == node.key
    ]
    earlier = [drain for candidate in candidates if (drain := stored_drain(candidate, stored)) is not None]
    assessed = list[tuple[DrainCandidate, Assessment]]()
    for candidate in candidates:
        if stored_drain(candidate, stored) is None:
            found = await assess_now(cluster, candidate, policy.unknown_holders)
            if found.reason:
                raise DrainRefusedError(f"the pods of {node.name} stay: {found.reason}")
            assessed.append((candidate, found))
    running = [drain for drain in earlier if not drain.state.is_finished]
    requested = _requested(assessed, stored, by, now)
    if not (running or requested):
        raise DrainRefusedError(_nothing_reason(node, earlier))
    for action in requested:
        await store.reserve(action)
    return (*running, *requested)


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


def _nothing_reason(node: InventoryNode, ended: list[NodeAction]) -> str:
    """Return why there is nothing to request. ended: drains of the present quarantine."""
    if not ended:
        return f"no pod uses the faulty hardware of {node.name}"
    last = max(ended, key=lambda action: action.ended_at)
    return (
        f"{node.name} was drained in this quarantine: {last.message or last.state.lower()}; "
        f"delete by hand what is left, or kubectl drain {node.name}"
    )
