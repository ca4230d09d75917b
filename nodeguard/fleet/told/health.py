"""Whether a node's health is known, and which. Pure."""

from __future__ import annotations

from collections.abc import Set

from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health, Knowledge


def known_health(planner: Planner, uid: str, silent: Set[str]) -> Health | None:
    """Return the health of a node; None where no report comes from it, or nothing could be judged there.
    silent: uids of nodes whose agents do not report.
    """
    one = planner.heard.get(uid)
    if one is None or uid in silent:
        return None
    if one.health == Health.OK and one.knowledge == Knowledge.UNKNOWN and not one.proven:
        return None
    return one.health
