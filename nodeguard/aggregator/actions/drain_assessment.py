"""The assessment of a drain: reads the pods of its node, with their claims and gangs, and asks whether all of
its set may be evicted now.

It evicts nothing. It is made before a drain is recorded, and again right before its first eviction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_costs import evicted_by_job, failure_of_job
from nodeguard.fleet.act.drain_notice import have_agreed
from nodeguard.fleet.act.drain_set import DrainSet, budget_reason, drain_set, pod_groups, with_gangs
from nodeguard.model.action import NodeAction
from nodeguard.model.drain import UnknownHolders
from nodeguard.model.eviction import DrainCluster, EvictionState, PodReadError
from nodeguard.model.pod import NodePod, PodGroupKey

# Dry runs of one set at the same time.
_PARALLEL = 8


class Assessment(Struct, frozen=True):
    """The set of a drain as it was read. reason: why no pod of it is evicted; empty if nothing forbids it. A
    set without pods has nothing to evict. namespaces: those in which a disruption budget selects one of its
    pods. groups: PodGroups of which all pods leave. retry_after: as of an Eviction, for its reason. ending:
    as of a DrainSet.
    """

    pods: tuple[NodePod, ...] = ()
    reason: str = ""
    namespaces: frozenset[str] = frozenset()
    groups: tuple[PodGroupKey, ...] = ()
    retry_after: float = 0.0
    ending: str = ""

    @property
    def uids(self) -> frozenset[str]:
        """Return the uids of the pods."""
        return frozenset(pod.key.uid for pod in self.pods)


async def assess(
    cluster: DrainCluster,
    candidate: DrainCandidate,
    unknown_holders: UnknownHolders,
    node_restraint: Callable[[str], str],
) -> Assessment:
    """Return whether the set of a candidate may leave now, by its pods and their disruption budgets.
    unknown_holders: of the policy. node_restraint: returns why the pods of a node stay, by its name.

    A disruption budget counts the pods of the set that it protects, since a dry run of one eviction does not
    count another. A pod that ends already needs no eviction and uses no budget. A budget that forbids the
    pods of a gang on the node forbids all of it: then its pods on other nodes are not read.
    """
    try:
        found, whole = await _node_set(cluster, candidate, unknown_holders)
        if whole:
            refused = await _by_budgets(cluster, replace(found, groups=whole))
            if refused.reason:
                return refused
            found = with_gangs(found, whole, await cluster.group_pods(whole), node_restraint)
        reason = found.reason
        if candidate.is_early and not have_agreed(found.pods):
            reason = reason or "a pod does not agree to leave before the time of its notice"
        if reason:
            return Assessment(found.pods, reason, groups=found.groups)
        return await _by_budgets(cluster, found)
    except PodReadError as error:
        return Assessment(reason=str(error), retry_after=error.retry_after)


async def _by_budgets(cluster: DrainCluster, found: DrainSet) -> Assessment:
    """Return whether disruption budgets allow to evict a set. Raises PodReadError."""
    to_evict = [pod for pod in found.pods if not pod.is_terminating]
    protected = set()
    for namespace in sorted({pod.key.namespace for pod in to_evict}):
        members = [pod for pod in to_evict if pod.key.namespace == namespace]
        budgets = await cluster.disruption_budgets(namespace)
        reason = budget_reason(members, budgets)
        if reason:
            return Assessment(found.pods, reason, groups=found.groups)
        if any(budget.selects(pod) for budget in budgets for pod in members):
            protected.add(namespace)
    return Assessment(found.pods, namespaces=frozenset(protected), groups=found.groups, ending=found.ending)


async def found_set(
    cluster: DrainCluster,
    candidate: DrainCandidate,
    unknown_holders: UnknownHolders,
    node_restraint: Callable[[str], str],
) -> DrainSet:
    """Return the pods that leave with a candidate, with all pods of the gangs that leave whole. The arguments
    are those of `assess`. Raises PodReadError.
    """
    found, whole = await _node_set(cluster, candidate, unknown_holders)
    if not whole:
        return found
    return with_gangs(found, whole, await cluster.group_pods(whole), node_restraint)


async def _node_set(
    cluster: DrainCluster, candidate: DrainCandidate, unknown_holders: UnknownHolders
) -> tuple[DrainSet, tuple[PodGroupKey, ...]]:
    """Return the pods of the node that leave with a candidate, and which of their PodGroups leave whole."""
    pods = await cluster.with_claims(candidate.node, await cluster.node_pods(candidate.node))
    found = drain_set(candidate, pods, unknown_holders)
    groups = () if found.reason else pod_groups(found.pods)
    return found, tuple([group for group in groups if await cluster.leaves_whole(group)])


async def recorded_pods(cluster: DrainCluster, action: NodeAction) -> dict[str, NodePod]:
    """Return the pods that a drain may have recorded and that are not finished, by uid: those of its node and
    of its PodGroups. Raises PodReadError.
    """
    pods = (*await cluster.node_pods(action.node), *await cluster.group_pods(action.pod_groups))
    return {pod.key.uid: pod for pod in pods}


async def left_pods(
    cluster: DrainCluster, action: NodeAction, remaining: Collection[str] | None
) -> dict[str, NodePod]:
    """Return the recorded pods of a drain that are not finished, and other pods of its node, by uid.
    remaining: uids of those that were left before; None if they were not read. Raises PodReadError.
    """
    own = {pod.key.uid: pod for pod in await cluster.node_pods(action.node)}
    missing = [
        key for key in action.pods if key.uid not in own and (remaining is None or key.uid in remaining)
    ]
    elsewhere = await cluster.group_pods(action.pod_groups, missing) if missing else ()
    return own | {pod.key.uid: pod for pod in elsewhere}


async def gone_pods(cluster: DrainCluster, action: NodeAction, found: Assessment) -> frozenset[str]:
    """Return the uids of the recorded pods that are not in a set, and that need no eviction any more: they
    end, or are gone. Raises PodReadError.
    """
    missing = {key.uid for key in action.pods} - found.uids
    pods = await recorded_pods(cluster, action) if missing else {}
    return frozenset(uid for uid in missing if uid not in pods or pods[uid].is_terminating)


async def try_evictions(cluster: DrainCluster, found: Assessment) -> Assessment:
    """Return a set that may leave as dry runs of its evictions find it: with a reason if the API server would
    refuse to evict one of its pods.
    """
    to_evict = [pod for pod in found.pods if not pod.is_terminating]
    for first in range(0, len(to_evict), _PARALLEL):
        tried = to_evict[first : first + _PARALLEL]
        responses = await asyncio.gather(*(cluster.evict(pod, is_dry_run=True) for pod in tried))
        for pod, response in zip(tried, responses, strict=True):
            if response.state != EvictionState.ACCEPTED:
                reason = f"pod {pod.key}: {response.message}"
                return replace(found, reason=reason, retry_after=response.retry_after)
    return found


async def eviction_costs(cluster: DrainCluster, pods: Iterable[NodePod]) -> tuple[str, ...]:
    """Return why Jobs would fail with the eviction of some pods, or why that is not known."""
    costs = list[str]()
    for (namespace, name), evicted in sorted(evicted_by_job(pods).items()):
        try:
            costs.append(failure_of_job(await cluster.job_retries(namespace, name), evicted))
        except PodReadError as error:
            costs.append(f"it is not known whether Job {namespace}/{name} would fail: {error}")
    return tuple(filter(None, costs))
