"""State of the running aggregator that responses show besides the plan, and ages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct

from nodeguard.fleet.act.drain_report import DrainReport
from nodeguard.fleet.state.rejected_reports import RejectedReport
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.pod import RejectedPods
from nodeguard.model.refused_request import RefusedRequest

STANDALONE = "standalone"


ObstacleKind = Literal[
    "not-read",
    "api-unreachable",
    "api-refuses",
    "writes-refused",
    "standby",
    "no-leader",
    "few-reports",
    "few-agents",
    "webhook-down",
]

# Obstacles that keep a replica from writing the marks of some nodes, and not from writing anything.
PARTIAL_OBSTACLES: frozenset[ObstacleKind] = frozenset({"few-agents", "webhook-down"})


class Obstacle(Struct, frozen=True):
    """What keeps a replica from writing. since: seconds of the monotonic clock.

    kind: see PARTIAL_OBSTACLES; each other one keeps it from writing anything.
    """

    kind: ObstacleKind
    reason: str
    since: float


class ServiceState(Struct, frozen=True):
    """The state of the aggregator's service at one time.

    leader: holder of the lease, STANDALONE without a lease, empty for none. is_leader: whether this replica
    holds it. obstacle: what keeps this replica from writing, None if nothing does. lacks_reports_since: since
    when it has received too few reports to lead, None while it has enough. started, lacks_reports_since:
    seconds of the monotonic clock. plan_age: seconds since the plan was made or found unchanged, None before
    the first. policy_file, policy_error: path of the policy, and why a newer one is rejected; each empty for
    none. version: of nodeguard. decisions: of operators, by incident name. refused: of the past minutes,
    latest first. connection_shortage: why not all expected agents can connect; empty where they can.
    notification_problem: which webhooks do not accept notifications, with the reason; empty for none.
    history_problem: why the history is not written; empty if it is, or if there is none. state_problem: why
    the state of a backend without Kubernetes is not stored.
    """

    leader: str
    is_leader: bool
    started: float
    obstacle: Obstacle | None = None
    lacks_reports_since: float | None = None
    plan_age: float | None = None
    policy_file: str = ""
    policy_error: str = ""
    version: str = ""
    decisions: Mapping[str, OperatorDecision] = {}
    refused: tuple[RejectedReport, ...] = ()
    connection_shortage: str = ""
    notification_problem: str = ""
    history_problem: str = ""
    state_problem: str = ""
    refused_requests: tuple[RefusedRequest, ...] = ()
    """Requests that the Kubernetes API refuses for lack of a right or of the resource."""
    actions: Collection[NodeAction] = ()
    """Of all nodes, as they are stored."""
    drains: tuple[DrainReport, ...] = ()
    """Of all nodes, on the aggregator that leads."""
    rejected_pods: Mapping[str, RejectedPods] = {}
    """Of nodes with an open fatal incident, by uid."""


# A hundred years: an agent with a broken clock may report more, even infinity.
_MAX_AGE = 3_155_760_000.0


def age(now: Instant, since: float) -> float:
    """Return the seconds since a time, 0 for a time in the future. since: seconds since the epoch."""
    return round(min(max(0.0, now.wall - since), _MAX_AGE), 1)
