"""Stale agents from a check of every node: the reference for `nodeguard.fleet.state.liveness`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.fleet.state.node_placement import NodePlacement


def silence(
    placements: Mapping[str, NodePlacement],
    last_reports: Mapping[str, float],
    now: float,
    after: float,
    freeze: float,
    long_stale: Container[str] = (),
) -> StaleAgents:
    """long_stale: nodes that count as down."""
    since = now - after
    stale = frozenset(uid for uid in placements if last_reports.get(uid, since) <= since)
    reported = sum(1 for uid in placements if uid in last_reports)
    counts = Counter(domain for uid in stale for domain in placements[uid].domains)
    whole = Counter(
        domain for placement in placements.values() for domain in placement.domains if domain in counts
    )
    explaining = {
        domain for domain, count in counts.items() if whole[domain] >= 3 and count >= 0.8 * whole[domain]
    }
    unexplained = [uid for uid in stale if explaining.isdisjoint(placements[uid].domains)]
    down = sum(1 for uid in unexplained if uid in long_stale or not placements[uid].ready)
    # A node without any report may have been stale before.
    maybe_down = sum(
        1 for uid in unexplained if uid in long_stale or not placements[uid].ready or uid not in last_reports
    )
    size, reason = len(placements), ""
    explained_by_nodes = down if maybe_down <= max(3, freeze * size) and maybe_down < size / 2 else 0
    if len(unexplained) - explained_by_nodes > max(1, freeze * size):
        rest = "them" if len(unexplained) == len(stale) else f"{len(unexplained)} of them"
        reason = (
            f"{len(stale)} of {len(placements)} agents do not report, and no failure domain explains {rest}: "
            "probably this aggregator is cut off, so check the network between it and the agents"
        )
    return StaleAgents(stale, len(placements), reported, reason)
