"""How many incidents are kept, of one node and in all, and which of them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from nodeguard.model.finding import Health
from nodeguard.model.incident import GRANTED_STATES, Incident, IncidentState

# Incidents of one node: as many as a report has findings. In all: two of each node of a fleet of 7,500, and
# 5,000 beside; of domains and checks.
MAX_PER_NODE = 128
MAX_TOTAL = 20_000
MAX_SHARED = 2_000

# Seconds for which an incident that is resolved is kept in any case, so that its end is written everywhere.
_KEPT = 60.0

# The part of each limit that incidents may fill which ask for no mark. The rest is for those that do: however
# many warnings there are, a new mark has its incident and its Event.
_WITHOUT_MARK = 0.75

# States in which a mark of an incident is set, or is decided on.
_MARKED = frozenset({*GRANTED_STATES, IncidentState.RECOVERING})
_OF_REQUESTS = _MARKED | {IncidentState.PENDING, IncidentState.DRY_RUN, IncidentState.WITHHELD}
_SEVERE = frozenset({Health.SUSPECT, Health.FATAL})


def limit_without_mark(most: int) -> int:
    """Return how many of `most` incidents there may be when a new one is recorded that asks for no mark."""
    return int(_WITHOUT_MARK * most)


def asks_for_mark(incident: Incident) -> bool:
    """Return whether an incident asks for a mark, or is of a domain or a check, that is of many nodes."""
    return incident.health in _SEVERE or incident.state in _OF_REQUESTS or not incident.node


def limit_incidents(
    before: Mapping[str, Incident], after: Mapping[str, Incident], most: int, fewer: int, now: float
) -> tuple[dict[str, Incident], dict[str, Incident]]:
    """Return the incidents of a node that are kept, and the new ones for which there is no room, by name.

    before, after: by name, before this plan and after it. most: how many may be kept; fewer than there were
    before lets no new one in, and takes none away but what has long been resolved. fewer: the same for a new
    one that asks for no mark; it may be negative. now: seconds since the epoch. An incident that was resolved
    long ago gives way, the oldest first; then the new ones that matter least are left out.
    """
    if len(after) <= min(most, fewer):
        return dict(after), {}
    kept = {name: incident for name, incident in after.items() if name in before}
    over = deque(_oldest_first(incident for incident in kept.values() if is_removable(incident, now)))

    def make_room(limit: int) -> None:
        while len(kept) > limit and over:
            del kept[over.popleft().name]

    left_out = {}
    make_room(most)
    new = (incident for name, incident in after.items() if name not in before)
    for incident in sorted(new, key=_weight, reverse=True):
        limit = most if asks_for_mark(incident) else fewer
        if len(kept) - len(over) >= limit:
            left_out[incident.name] = incident
        else:
            make_room(limit - 1)
            kept[incident.name] = incident
    return kept, left_out


def surplus(incidents: Iterable[Incident], most: int, now: float) -> frozenset[str]:
    """Return the names of incidents that give way so that so many are left: those resolved longest ago."""
    every = list(incidents)
    return _oldest([incident for incident in every if is_removable(incident, now)], len(every) - most)


def is_removable(incident: Incident, now: float) -> bool:
    """Return whether an incident was resolved so long ago that it may give way."""
    return incident.state == IncidentState.RESOLVED and now - incident.resolved_at >= _KEPT


def _oldest(over: list[Incident], count: int) -> frozenset[str]:
    """Return the names of so many incidents, those that were resolved longest ago."""
    return frozenset(incident.name for incident in _oldest_first(over)[: max(0, count)])


def _oldest_first(over: Iterable[Incident]) -> list[Incident]:
    return sorted(over, key=lambda incident: incident.resolved_at)


def _weight(incident: Incident) -> tuple[bool, bool, int, float, str]:
    """Return the place of a new incident among others, the least important first."""
    asks, is_marked = asks_for_mark(incident), incident.state in _MARKED
    return (asks, is_marked, incident.health.rank, -incident.first_seen, incident.name)
