"""Lemons, told. Pure."""

from __future__ import annotations

from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.ages import age
from nodeguard.fleet_api.forms import LemonTold
from nodeguard.model.instant import Instant, rfc3339


def lemons(planner: Planner, now: Instant, node: str = "") -> tuple[LemonTold, ...]:
    """The lemons, the worst first; of one node, where it is named."""
    return tuple(
        LemonTold(
            part=one.part,
            node=one.node,
            slot=one.slot,
            faults=one.faults,
            expected=round(one.expected, 4),
            check=one.check,
            latest=rfc3339(one.at),
            latest_age=age(now, one.at),
            since=rfc3339(one.since),
            age=age(now, one.since),
        )
        for one in planner.parts.lemons(now)
        if not node or one.node == node
    )
