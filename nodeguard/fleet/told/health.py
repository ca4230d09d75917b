"""Whether a node's health is known, and which. Pure."""

from __future__ import annotations

from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health, Knowledge


def known_health(planner: Planner, uid: str) -> Health | None:
    """The health of a node; None where nothing is heard of it, or nothing could be judged there."""
    one = planner.heard.get(uid)
    if one is None or uid in planner.silence.silent:
        return None
    if one.health == Health.OK and one.knowledge == Knowledge.UNKNOWN and not one.proven:
        return None
    return one.health
