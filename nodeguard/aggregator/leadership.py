"""Leadership rules: whether this aggregator takes the lease, keeps it, or releases it. Pure.

All agents report to each replica, and the replicas have no connection to each other. A leader that receives
too few reports sets no mark, and cannot know whether another replica receives more. So it releases the lease
and leaves time for a replica with enough reports. If none takes it, any replica does.

Times are seconds of a monotonic clock; each replica has its own.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.kube.lease_record import LEASE_SECONDS

# Seconds without enough reports after which a leader releases the lease: as long as an aggregator waits for
# reports at its start.
RELEASE_AFTER = 60.0

# Seconds without a leader for which only a replica with enough reports takes the lease: three times its
# duration, so that each replica has read several times that it is free.
RESERVED = 3.0 * LEASE_SECONDS

# Seconds for which a replica keeps the lease that it has taken without enough reports: this bounds the number
# of changes while no replica has enough.
TERM = 600.0

# The minimum share of agents with a current report. Failure domains may explain the others, as after a power
# failure; a replica that receives less is more likely cut off itself.
_MIN_CURRENT_SHARE = 0.5


class Candidacy(Struct, frozen=True):
    """What a replica remembers between two turns of the plan loop.

    wanted: whether it takes, or keeps, the lease now. is_leader: whether it held the lease at that turn.
    lacks_reports_since: since when it has not had enough reports; None while it has. abstains_until: until
    when it does not take the lease, after it has released it. term_end: until when it keeps the lease without
    enough reports.
    """

    wanted: bool = False
    is_leader: bool = False
    lacks_reports_since: float | None = None
    abstains_until: float = -inf
    term_end: float = -inf


def has_enough_reports(agents: StaleAgents) -> bool:
    """Return whether a replica with these agents receives enough reports to lead."""
    current = agents.expected - len(agents.stale)
    return not agents.frozen and current >= _MIN_CURRENT_SHARE * agents.expected


def next_candidacy(
    before: Candidacy,
    *,
    has_inputs: bool,
    has_reports: bool,
    is_leader: bool,
    vacant_since: float | None,
    now: float,
) -> Candidacy:
    """Return the candidacy for a turn.

    has_inputs: whether all objects of the cluster were read; without them nothing can be written.
    has_reports: see has_enough_reports. is_leader: whether this replica holds the lease. vacant_since: since
    when it has seen no holder; None while there is one.
    """
    since = now if before.lacks_reports_since is None else before.lacks_reports_since
    following = replace(before, is_leader=is_leader, lacks_reports_since=None if has_reports else since)
    if is_leader:
        return _as_leader(following, is_new=not before.is_leader, now=now)
    is_free_for_all = vacant_since is not None and now - vacant_since >= RESERVED
    may_take = has_inputs and now >= before.abstains_until
    return replace(following, wanted=may_take and (has_reports or is_free_for_all))


def _as_leader(candidacy: Candidacy, *, is_new: bool, now: float) -> Candidacy:
    since = candidacy.lacks_reports_since
    term_end = now + TERM if is_new and since is not None else candidacy.term_end
    if since is not None and now - since >= RELEASE_AFTER and now >= term_end:
        return replace(candidacy, wanted=False, abstains_until=now + RESERVED)
    return replace(candidacy, wanted=True, term_end=term_end)
