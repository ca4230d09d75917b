"""The obstacle: why this aggregator writes nothing, or can mark only few nodes, and since when. Pure."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.aggregator.backends.backend import ApiProblem
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.fleet.state.liveness import MAX_START_WAIT, MIN_REPORTING_SHARE, StaleAgents, may_act
from nodeguard.fleet_api.service_state import Obstacle
from nodeguard.judge.formatting import format_duration

# Seconds for which the API server may fail, or refuse the writes of Nodes, before the replica is not ready.
_NOT_READY_AFTER = 60.0

_API_OBSTACLES = frozenset({"api-unreachable", "api-refuses", "writes-refused"})


class ReplicaState(Struct, frozen=True):
    """The state of a replica at one time. Times are seconds of the monotonic clock.

    started_at: of the process. missing: inputs that were not read yet. leader: holder of the lease, empty for
    none; leader_since: since when that is so. lease_problem, write_problem: of requests about the lease, and
    of writes of Nodes. listen_problem: why no agent can connect, empty if they can.
    """

    started_at: float
    agents: StaleAgents
    candidacy: Candidacy
    leader: str = ""
    leader_since: float = 0.0
    is_leader: bool = False
    missing: str = ""
    lease_problem: ApiProblem | None = None
    write_problem: ApiProblem | None = None
    listen_problem: str = ""


def write_obstacle(replica: ReplicaState, now: float) -> Obstacle | None:
    """Return what keeps a replica from writing; None if nothing does, also while new marks are frozen."""
    if replica.lease_problem is not None:
        return _api_obstacle(replica.lease_problem)
    if replica.missing:
        return Obstacle("not-read", f"not read yet: {replica.missing}", replica.started_at)
    if not replica.is_leader:
        return _not_leader(replica)
    if not may_apply(replica, now):
        counts = f"{replica.agents.reported} of {replica.agents.expected} agents have reported"
        until = f"{MIN_REPORTING_SHARE:.0%}, or {format_duration(MAX_START_WAIT)} after its start"
        return Obstacle("few-reports", f"{counts}: becomes active at {until}", replica.started_at)
    if replica.write_problem is not None:
        reason = f"the API server refuses writes of Nodes: {replica.write_problem.refusal}"
        return Obstacle("writes-refused", reason, replica.write_problem.since)
    if replica.candidacy.lacks_reports_since is not None and not replica.agents.frozen:
        reason = f"this replica receives reports of {_reporting(replica.agents)}"
        return Obstacle("few-agents", reason, replica.candidacy.lacks_reports_since)
    return None


def may_apply(replica: ReplicaState, now: float) -> bool:
    """Return whether a replica applies its plans: it leads, and knows enough of the fleet."""
    knows_fleet = not replica.missing and may_act(replica.agents, replica.started_at, now)
    return replica.is_leader and knows_fleet


def is_ready(replica: ReplicaState, now: float) -> bool:
    """Return whether a replica is ready, for the probe of Kubernetes."""
    if replica.listen_problem:
        return False
    obstacle = write_obstacle(replica, now)
    if replica.missing or obstacle is None or obstacle.kind not in _API_OBSTACLES:
        return not replica.missing
    return now - obstacle.since < _NOT_READY_AFTER


def _api_obstacle(problem: ApiProblem) -> Obstacle:
    if problem.refusal:
        return Obstacle("api-refuses", f"the API server refuses: {problem.refusal}", problem.since)
    return Obstacle("api-unreachable", "the API server has not answered", problem.since)


def _not_leader(replica: ReplicaState) -> Obstacle:
    reason = f"{replica.leader or 'no aggregator'} is the leader"
    if replica.candidacy.lacks_reports_since is not None:
        reason += f", and this replica receives reports of {_reporting(replica.agents)}"
    return Obstacle("standby" if replica.leader else "no-leader", reason, replica.leader_since)


def _reporting(agents: StaleAgents) -> str:
    return f"{agents.expected - len(agents.stale)} of {agents.expected} agents"
