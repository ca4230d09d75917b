"""Whether a node's health is known, and which. Pure."""

from __future__ import annotations

from collections.abc import Set

from nodeguard.fleet.heard import Heard
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health, Knowledge

# The health of a node of which none is known.
UNKNOWN = Knowledge.UNKNOWN.value


def known_health(planner: Planner, uid: str, silent: Set[str]) -> Health | None:
    """Return the health of a node; None where no report comes from it, or nothing could be judged there.
    silent: uids of nodes whose agents do not report.
    """
    return None if uid in silent else reported_health(planner.heard.get(uid))


def reported_health(one: Heard | None) -> Health | None:
    """Return the health that a report has; None where there is none, or nothing could be judged."""
    if one is None or (one.health == Health.OK and one.knowledge == Knowledge.UNKNOWN and not one.proven):
        return None
    return one.health
