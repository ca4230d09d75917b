"""What only the service knows that runs a planner."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.fleet.state.rejected_reports import RejectedReport
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant

STANDALONE = "standalone"


class ServiceState(Struct, frozen=True):
    """The service at a moment.

    leader: who holds the lease, STANDALONE without one, empty for nobody. leads: whether it is this replica.
    waits: what keeps it from having anything written, if it leads; empty for nothing. started: seconds of a
    monotonic clock. plan_age: seconds since the latest plan, None before the first. policy_file and _error:
    where the policy comes from, and why a newer one is kept out; each empty for none. version: of nodeguard.
    decisions: of people, by the incident's name. refused: of the past minutes, the latest first. shortage:
    why not all expected agents can connect, empty where they can.
    """

    leader: str
    is_leader: bool
    started: float
    inactive_reason: str = ""
    plan_age: float | None = None
    policy_file: str = ""
    policy_error: str = ""
    version: str = ""
    decisions: Mapping[str, OperatorDecision] = {}
    refused: tuple[RejectedReport, ...] = ()
    connection_shortage: str = ""


# A hundred years: an agent with a broken clock may claim more, even without end.
_MOST = 3_155_760_000.0


def age(now: Instant, since: float) -> float:
    """Seconds since a moment, 0 for one that is yet to come. since: seconds since the epoch."""
    return round(min(max(0.0, now.wall - since), _MOST), 1)
