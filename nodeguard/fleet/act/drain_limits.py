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
    """Number of drains that began within an hour."""


def drain_usage(actions: Iterable[NodeAction], age: Callable[[NodeAction], float]) -> DrainUsage:
    """Return what stored actions use. age: seconds since the begin of a drain, see DrainAges. A withdrawn
    drain that evicted nothing counts for nothing.
    """
    usage = DrainUsage(set(), 0)
    for action in actions:
        if action.kind != ActionKind.DRAIN:
            continue
        if not action.state.is_finished:
            usage.running.add(action.uid)
        if action.begun_at or not action.state.is_finished:
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
        return f"{recent} drains began within an hour (drain.limits.newPerHour)"
    for domain in domains:
        if used.get(domain, 0) >= limits.domain:
            name = domain.partition("/")[2]
            return f"another node of {name} is being drained (drain.limits.perDomain)"
    return ""
