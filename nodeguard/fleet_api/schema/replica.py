"""Schema of the replica that answers: its policy, its obstacle, and the agents that reach it."""

from __future__ import annotations

from msgspec import Struct


class ReplicaView(Struct, frozen=True):
    """The aggregator replica that answers."""

    leader: str
    """Holder of the lease, `standalone` without a lease, empty if no replica holds it."""
    is_leader: bool
    """Whether this replica holds the lease."""
    is_active: bool
    """Whether this replica may write marks."""
    inactive_reason: str
    """Why it may not; empty if it may."""
    since: str
    """When this replica started."""
    age: float
    """Seconds since then."""
    plan_age: float | None
    """Seconds since its plan was made or found unchanged; null before the first plan."""
    nodeguard_version: str
    """Version of nodeguard."""


class ObstacleView(Struct, frozen=True):
    """What keeps the replica that answers from writing marks."""

    kind: str
    """`not-read`, `api-unreachable`, `api-refuses`, `writes-refused`, `standby`, `no-leader` or
    `few-reports`, which keep the replica from writing anything; `few-agents`, which keeps it from marking
    most nodes; or `webhook-down`: a webhook does not accept the marks of the nodes that it owns."""
    effect: str
    """What is not written."""
    reason: str
    since: str
    """When it began."""
    age: float
    """Seconds since then."""


class PolicyView(Struct, frozen=True):
    """The active policy."""

    file: str
    """Path of the file; empty for the built-in policy."""
    error: str
    """Why a newer file is rejected; empty if none is."""
    mode: str
    """Mode of checks that no rule matches."""
    rules: int
    """Number of rules that set a mode."""
    enforced: tuple[str, ...] = ()
    """Patterns of the checks that rules enforce, in order."""
    observed: tuple[str, ...] = ()
    """Patterns of the checks that rules only observe, in order."""
    observe_only: bool = False
    """Whether nothing is enforced, neither for nodes nor for domains."""


class AgentCounts(Struct, frozen=True):
    """Numbers of agents by the reports that this replica has received."""

    expected: int
    """Number of agents that should report: one for each node."""
    reported: int
    """Number of agents that have reported to this replica."""
    not_reporting: int
    """Number of agents without a current report."""
    stale: int
    """Number of those agents that reported before."""


class RefusedMessages(Struct, frozen=True):
    """Agent messages of a node that the aggregator refuses, the latest one in the past ten minutes."""

    node: str
    reason: str
    """Value of the label `reason` in the metrics."""
    message: str
    """The latest answer to the agent, with the remedy."""
    count: int
    """Number of refused messages since `since`."""
    latest: str
    """Time of the latest refusal."""
    age: float
    """Seconds since the latest refusal."""
    since: str
    """Time of the first refusal."""
    since_age: float
    """Seconds since the first refusal."""


class RefusedRequestView(Struct, frozen=True):
    """Requests of one kind that the Kubernetes API refuses for lack of a right or of the resource."""

    verb: str
    """Verb of the requests, such as `patch`."""
    resource: str
    """Resource of the requests, such as `nodes/status`."""
    reason: str
    """Error of the latest request, with the remedy."""
    since: str
    """Time of the first refusal."""
    age: float
    """Seconds since the first refusal."""
