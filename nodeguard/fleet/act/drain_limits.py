"""Limits of drains: which candidates may begin now, in which order, and why the others wait. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.budget_limits import whole_nodes
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.drain import DrainLimits

_HOUR = 3600.0

# A domain with a larger part of the fleet, such as a zone, would limit the drains of all nodes.
_MAX_DOMAIN = 0.25


class DrainUsage(Struct):
    """What the drains of a fleet use of the limits."""

    running: set[str]
    """Uids of the Nodes that are being drained."""
    recent: int
    """Number of drains by the policy that began within an hour."""


def drain_usage(actions: Iterable[NodeAction], age: Callable[[NodeAction], float]) -> DrainUsage:
    """Return what stored actions use. age: seconds since the begin of a drain, see DrainAges. A withdrawn
    drain that evicted nothing counts for nothing. One that an operator requested counts while it runs.
    """
    usage = DrainUsage(set(), 0)
    for action in actions:
        if action.kind != ActionKind.DRAIN:
            continue
        if not action.state.is_finished:
            usage.running.add(action.uid)
        if not action.requested_by and (action.begun_at or not action.state.is_finished):
            usage.recent += age(action) < _HOUR
    return usage


def within_limits(
    candidates: Iterable[DrainCandidate],
    usage: DrainUsage,
    limits: DrainLimits,
    placements: Mapping[str, NodePlacement],
    domain_size: Callable[[str], int],
) -> list[DrainCandidate]:
    """Return the candidates in their order, those beyond a limit with the limit as their blocker.

    A candidate with a blocker of its own stays as it is and uses nothing. domain_size: returns the number of
    nodes of the budget of a failure domain. The longest quarantine is first, so that the order never changes.
    """
    nodes = whole_nodes(limits.nodes, len(placements))
    largest = whole_nodes(_MAX_DOMAIN, len(placements))
    running, recent = set(usage.running), usage.recent
    domains = Counter(domain for uid in running if uid in placements for domain in placements[uid].domains)
    admitted = []
    for candidate in sorted(candidates, key=lambda item: (item.since, item.node, item.resource)):
        placement = placements.get(candidate.uid)
        blocker = candidate.blocker
        if placement is None:
            blocker = blocker or "the node does not belong to the fleet"
        elif not blocker:
            small = [name for name in placement.domains if domain_size(name) <= largest]
            blocker = _limit(candidate.uid, running, recent, nodes, limits, small, domains)
            if not blocker:
                recent += 1
                running.add(candidate.uid)
                domains.update(placement.domains)
        admitted.append(candidate if blocker == candidate.blocker else replace(candidate, blocker=blocker))
    return admitted


def earlier_drain_reason(
    uids: Collection[str],
    namespaces: Collection[str],
    own: NodeAction | None,
    others: Iterable[NodeAction],
    confirmed: Collection[str],
) -> str:
    """Return why a set waits for another drain, with which it shares pods of a gang, or may share a
    disruption budget; empty for none. Each of two sets may fit a budget that does not allow both.

    uids: of the pods of the set. namespaces: those in which a budget selects pods of the set; others do not
    matter. own: the recorded drain of the set; None for none. others: other drains that may still evict pods.
    Their pods are recorded without labels, so that each of a namespace counts. confirmed: keys of drains that
    may evict their first pod now.

    A drain that has begun or is confirmed is first, then the one that was recorded first: never both, as long
    as each set that is allowed to leave is confirmed before the next one asks.
    """

    def is_committed(drain: NodeAction | None) -> bool:
        return drain is not None and (bool(drain.begun_at) or drain.key in confirmed)

    for other in others:
        is_earlier = own is None or (other.created_at, other.key) < (own.created_at, own.key)
        if not is_committed(other) and (is_committed(own) or not is_earlier):
            continue
        pods = sorted(pod for pod in other.pods if pod.uid in uids)
        if pods:
            return f"the drain of {other.node} is first: it evicts pod {pods[0]} too"
        shared = sorted({pod.namespace for pod in other.pods}.intersection(namespaces))
        if shared:
            budget = f"a PodDisruptionBudget of namespace {shared[0]}"
            return f"the drain of {other.node} is first: {budget} may select pods of both"
    return ""


def _limit(
    uid: str,
    running: Collection[str],
    recent: int,
    nodes: int,
    limits: DrainLimits,
    domains: Iterable[str],
    used: Mapping[str, int],
) -> str:
    """Return the limit that a further drain would exceed; empty for none."""
    if uid in running:
        return "another drain of the node is running"
    if len(running) >= nodes:
        return f"{len(running)} of {nodes} nodes are being drained (drain.limits.nodes)"
    if recent >= limits.hourly:
        return f"{recent} of {limits.hourly} drains began within an hour (drain.limits.newPerHour)"
    for domain in domains:
        if used.get(domain, 0) >= limits.domain:
            name = domain.partition("/")[2]
            return f"another node of {name} is being drained (drain.limits.perDomain)"
    return ""
