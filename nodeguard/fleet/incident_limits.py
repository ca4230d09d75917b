"""How many incidents are kept, of one node and in all, and which of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeguard.model.incident import GRANTED, Incident, State

# Incidents of one node: as many as a report has findings. In all: two of each node of a fleet of 7,500, and
# 5,000 beside; of domains and checks.
OF_NODE = 128
IN_ALL = 20_000
OF_MANY = 2_000

# Seconds for which an incident that is resolved is kept in any case, so that its end is written everywhere.
_KEPT = 60.0

_MARKED = frozenset({*GRANTED, State.RECOVERING})


def limited(
    before: Mapping[str, Incident], after: Mapping[str, Incident], most: int, now: float
) -> tuple[dict[str, Incident], frozenset[str]]:
    """Return the incidents of a node that are kept, and the names of new ones for which there is no room.

    before, after: by name, before this plan and after it. most: how many may be kept; fewer than there were
    before lets no new one in, and takes none away but what has long been resolved. now: seconds since the
    epoch. An incident that was resolved long ago gives way, the oldest first; then the new ones that matter
    least are left out.
    """
    excess = len(after) - most
    if excess <= 0:
        return dict(after), frozenset()
    over = [incident for name, incident in after.items() if name in before and is_over(incident, now)]
    gone = _oldest(over, excess)
    excess -= len(gone)
    new = sorted((incident for name, incident in after.items() if name not in before), key=_weight)
    left_out = frozenset(incident.name for incident in new[: max(0, excess)])
    kept = {name: incident for name, incident in after.items() if name not in gone | left_out}
    return kept, left_out


def surplus(incidents: Iterable[Incident], most: int, now: float) -> frozenset[str]:
    """Return the names of incidents that give way so that so many are left: those resolved longest ago."""
    every = list(incidents)
    return _oldest([incident for incident in every if is_over(incident, now)], len(every) - most)


def is_over(incident: Incident, now: float) -> bool:
    """Return whether an incident was resolved so long ago that it may give way."""
    return incident.state == State.RESOLVED and now - incident.resolved >= _KEPT


def _oldest(over: list[Incident], count: int) -> frozenset[str]:
    """Return the names of so many incidents, those that were resolved longest ago."""
    ordered = sorted(over, key=lambda incident: incident.resolved)
    return frozenset(incident.name for incident in ordered[: max(0, count)])


def _weight(incident: Incident) -> tuple[bool, int, float, str]:
    """Return the place of a new incident among others, the least important first."""
    return (incident.state in _MARKED, incident.health.rank, -incident.since, incident.name)
