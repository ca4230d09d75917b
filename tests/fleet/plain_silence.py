"""Who is silent, told by a look at every node: what `nodeguard.fleet.state.liveness` is held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.fleet.state.node_placement import NodePlacement


def silence(
    seats: Mapping[str, NodePlacement], heard: Mapping[str, float], now: float, after: float, freeze: float
) -> StaleAgents:
    since = now - after
    silent = frozenset(uid for uid in seats if heard.get(uid, since) <= since)
    known = sum(1 for uid in seats if uid in heard)
    quiet = Counter(domain for uid in silent for domain in seats[uid].domains)
    whole = Counter(domain for seat in seats.values() for domain in seat.domains if domain in quiet)
    dark = {one for one, many in quiet.items() if whole[one] >= 3 and many >= 0.8 * whole[one]}
    alone = sum(1 for uid in silent if dark.isdisjoint(seats[uid].domains))
    why = ""
    if alone and alone > freeze * len(seats):
        why = (
            f"{len(silent)} of {len(seats)} agents are stale and no domain explains {alone} of them: "
            "see whether they can reach this aggregator"
        )
    return StaleAgents(silent, len(seats), known, why)
