"""How many incidents are kept, of one node and in all, and which of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeguard.model.incident import Incident, State

# Incidents of one node: as many as a report has findings. In all: two of each node of a fleet of 7,500, and
# 5,000 beside; of domains and checks.
OF_NODE = 128
IN_ALL = 20_000
OF_MANY = 2_000

# Seconds for which an incident that is resolved is kept in any case, so that its end is written everywhere.
_KEPT = 60.0

_MARKED = frozenset({State.MARKED, State.RECOVERING})


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
    old = [one for name, one in after.items() if name in before and is_over(one, now)]
    gone = {one.name for one in sorted(old, key=lambda one: one.resolved)[:excess]}
    excess -= len(gone)
    new = sorted((one for name, one in after.items() if name not in before), key=_weight)
    left_out = frozenset(one.name for one in new[: max(0, excess)])
    return {name: one for name, one in after.items() if name not in gone | left_out}, left_out


def surplus(incidents: Iterable[Incident], most: int, now: float) -> frozenset[str]:
    """Return the names of incidents that give way so that so many are left: those resolved longest ago."""
    every = list(incidents)
    old = sorted((one for one in every if is_over(one, now)), key=lambda one: one.resolved)
    return frozenset(one.name for one in old[: max(0, len(every) - most)])


def is_over(one: Incident, now: float) -> bool:
    """Whether an incident was resolved so long ago that it may give way."""
    return one.state == State.RESOLVED and now - one.resolved >= _KEPT


def _weight(one: Incident) -> tuple[bool, int, float, str]:
    """The place of a new incident among others, the one that matters least first."""
    return (one.state in _MARKED, one.health.rank, -one.since, one.name)
