"""Limits on incidents: how many are recorded for one node and in all, and which ones. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.finding import Health
from nodeguard.model.incident import GRANTED_STATES, Incident, IncidentState
from nodeguard.model.instant import Instant

# Incidents of one node: as many as a report has findings. In all: two of each node of a fleet of 7,500, and
# 5,000 beside; of domains and checks.
MAX_PER_NODE = 128
MAX_TOTAL = 20_000
MAX_SHARED = 2_000

# Incidents of injected faults have limits of their own, so that they take no room of real ones. Of one node:
# several times as many as can be injected at once. In all: a rehearsal on many nodes.
MAX_INJECTED_PER_NODE = 32
MAX_INJECTED = 1_000

# Seconds for which a resolved incident is always recorded, so that its end is written everywhere.
_MIN_RESOLVED_AGE = 60.0

# The part of each limit that incidents may fill which ask for no mark. The rest is for those that do: however
# many warnings there are, a new mark has its incident and its Event.
_WITHOUT_MARK = 0.75

# States in which a mark of an incident is set, or is decided on.
_MARKED = frozenset({*GRANTED_STATES, IncidentState.RECOVERING})
_OF_REQUESTS = _MARKED | {IncidentState.PENDING, IncidentState.DRY_RUN, IncidentState.WITHHELD}
_SEVERE = frozenset({Health.SUSPECT, Health.FATAL})


class IncidentKind(Struct, frozen=True):
    """The facts about an incident that decide on its limits. injected: whether its faults are injected. asks:
    see asks_for_mark.
    """

    injected: bool
    asks: bool


def incident_kind(incident: Incident) -> IncidentKind:
    """Return the kind of an incident."""
    return IncidentKind(incident.injected, asks_for_mark(incident))


def limit_without_mark(most: int) -> int:
    """Return how many of `most` incidents there may be when a new one is recorded that asks for no mark."""
    return int(_WITHOUT_MARK * most)


def asks_for_mark(incident: Incident) -> bool:
    """Return whether an incident asks for a mark, or is of a domain or a check, that is of many nodes."""
    return incident.health in _SEVERE or incident.state in _OF_REQUESTS or not incident.node


def limit_incidents(
    before: Mapping[str, Incident], after: Mapping[str, Incident], most: int, fewer: int, age: RecordedAge
) -> tuple[dict[str, Incident], dict[str, Incident]]:
    """Return the incidents of a node to record, and the new ones beyond the limit, by name: the real ones, or
    those of injected faults.

    before, after: by name, before this plan and after it. most: how many may be recorded; fewer than before
    admits no new one, and removes only those that were resolved long ago. fewer: the same for a new one that
    asks for no mark; it may be negative. Incidents that were resolved long ago are removed first, the oldest
    first; then the least important new ones are left out.
    """
    if len(after) <= min(most, fewer):
        return dict(after), {}
    recorded = {name: incident for name, incident in after.items() if name in before}
    over = deque(_oldest_first(incident for incident in recorded.values() if is_removable(incident, age)))

    def make_room(limit: int) -> None:
        while len(recorded) > limit and over:
            del recorded[over.popleft().name]

    left_out = {}
    make_room(most)
    new = (incident for name, incident in after.items() if name not in before)
    for incident in sorted(new, key=_weight, reverse=True):
        limit = most if asks_for_mark(incident) else fewer
        if len(recorded) - len(over) >= limit:
            left_out[incident.name] = incident
        else:
            make_room(limit - 1)
            recorded[incident.name] = incident
    return recorded, left_out


def surplus(incidents: Iterable[Incident], most: int, age: RecordedAge) -> frozenset[str]:
    """Return the names of the incidents to remove so that `most` are left: those resolved longest ago."""
    every = list(incidents)
    return _oldest([incident for incident in every if is_removable(incident, age)], len(every) - most)


def is_removable(incident: Incident, age: RecordedAge) -> bool:
    """Return whether an incident was resolved long enough ago to be removed."""
    return incident.state == IncidentState.RESOLVED and age(incident.resolved_at) >= _MIN_RESOLVED_AGE


def seconds_resolved(incident: Incident, age: RecordedAge, now: Instant) -> float:
    """Return for how many seconds an incident is certainly resolved; 0 while it is open. Its time may be from
    another aggregator, with the right clock while this one was wrong.
    """
    if incident.is_open:
        return 0.0
    return max(0.0, min(age(incident.resolved_at), now.wall - incident.resolved_at))


def _oldest(over: list[Incident], count: int) -> frozenset[str]:
    """Return the names of the `count` incidents that were resolved longest ago."""
    return frozenset(incident.name for incident in _oldest_first(over)[: max(0, count)])


def _oldest_first(over: Iterable[Incident]) -> list[Incident]:
    return sorted(over, key=lambda incident: incident.resolved_at)


def _weight(incident: Incident) -> tuple[bool, bool, int, float, str]:
    """Return the rank of a new incident among others, the least important first."""
    asks, is_marked = asks_for_mark(incident), incident.state in _MARKED
    return (asks, is_marked, incident.health.rank, -incident.first_seen, incident.name)
