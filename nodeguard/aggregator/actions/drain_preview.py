"""The preview of a node's drains for an operator: which pods would leave now, or why they stay.

It makes the same assessment as the drain runner, and evicts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_assessment import (
    Assessment,
    assess,
    eviction_costs,
    try_evictions,
)
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import stored_drain
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet.drains import node_drain_candidates, node_restraint, owner_reason
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.drain import drain_views
from nodeguard.fleet_api.schema.drain import DrainPreview
from nodeguard.fleet_api.schema.status import VERSION
from nodeguard.model.action import NodeAction
from nodeguard.model.eviction import DrainCluster, PodReadError
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.inventory import InventoryNode


async def preview_drain(
    planner: Planner,
    cluster: DrainCluster,
    drains: Collection[DrainReport],
    actions: Iterable[NodeAction],
    node: InventoryNode,
    now: Instant,
) -> DrainPreview:
    """Return what a drain of a node would evict now. drains: of the fleet; running ones stay as they are.
    actions: all that are stored. Raises PodReadError if the API server should be asked again.
    """
    reports = [drain for drain in drains if drain.uid == node.key and drain.state == DrainState.RUNNING]
    drained = {report.resource for report in reports}
    reports += [
        await _preview(cluster, candidate, planner, stored_drain(candidate, actions))
        for candidate in node_drain_candidates(planner, node.key, now)
        if candidate.resource not in drained
    ]
    reason = "" if reports else no_drain_reason(planner, node)
    return DrainPreview(VERSION, rfc3339(now.wall), node.name, drain_views(reports, now), reason)


async def assess_now(
    cluster: DrainCluster, candidate: DrainCandidate, planner: Planner, drained: NodeAction | None
) -> Assessment:
    """Return the set of a candidate, and why it may not leave now: also by dry runs of its evictions.
    drained: the finished drain of its quarantine, which is not repeated; None for none. Raises PodReadError
    if the API server should be asked again.
    """
    unknown_holders = planner.policy.drain.unknown_holders
    found = await assess(cluster, candidate, unknown_holders, partial(node_restraint, planner))
    repeated = _repeated_reason(drained) if drained is not None and found.pods else ""
    if reason := candidate.blocker or repeated:
        return replace(found, reason=reason)
    found = found if found.reason else await try_evictions(cluster, found)
    if found.retry_after:
        raise PodReadError(found.reason, found.retry_after)
    return found


def _repeated_reason(drained: NodeAction) -> str:
    end = drained.message or drained.state.lower()
    remedy = f"delete the pods by hand, or kubectl drain {drained.node}"
    return f"it was drained in this quarantine: {end}: {remedy}"


async def _preview(
    cluster: DrainCluster, candidate: DrainCandidate, planner: Planner, drained: NodeAction | None
) -> DrainReport:
    assessment = await assess_now(cluster, candidate, planner, drained)
    reason = assessment.reason or assessment.ending
    return DrainReport(
        candidate.node,
        candidate.uid,
        candidate.resource,
        candidate.checks,
        candidate.since,
        DrainState.WAITS if reason else DrainState.WOULD_DRAIN,
        reason,
        tuple(pod.key for pod in assessment.pods),
        assessment.groups,
        costs=() if reason else await eviction_costs(cluster, assessment.pods),
    )


def no_drain_reason(planner: Planner, node: InventoryNode) -> str:
    """Return why a node has nothing to drain."""
    if node.owner:
        return owner_reason(node)
    causes = [cause for _, cause in planner.state.marks.observed(node.key).records.causes()]
    quarantines = [cause for cause in causes if cause.mark.kind.drains]
    if quarantines and all(cause.injected for cause in quarantines):
        reason = "its quarantine is of an injected fault"
    elif quarantines:
        reason = "its quarantine has no fault that is fatal now"
    else:
        reason = "no quarantine of a fatal fault is observed on it"
    return f"{reason}: kubectl drain {node.name} empties any node"
