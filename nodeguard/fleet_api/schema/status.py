"""Schema of the status of the fleet, and parts of several responses: budgets, incident summaries, versions.

VERSION 1: fields may be added; none is removed or changes its meaning. Times are RFC 3339, empty for none;
ages and durations are seconds by the aggregator's clock.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.action import ActionView
from nodeguard.fleet_api.schema.capacity import CapacityView, MarkedCounts, ReasonCount
from nodeguard.fleet_api.schema.domain import DomainSummary, SuppressedCheckView, TopologyView
from nodeguard.fleet_api.schema.drain import DrainView
from nodeguard.fleet_api.schema.incident_summary import EndedFaultView, IncidentSummary, OmittedIncidents
from nodeguard.fleet_api.schema.job import JobOutcomeView
from nodeguard.fleet_api.schema.replica import (
    AgentCounts,
    ObstacleView,
    PolicyView,
    RefusedMessages,
    RefusedRequestView,
    ReplicaView,
)
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState

VERSION: Literal[1] = 1


class NodeCounts(Struct, frozen=True):
    """Numbers of nodes, by health and by what operators decided."""

    ok: int
    """Nodes with the health `ok`."""
    warning: int
    """Nodes with the health `warning`."""
    suspect: int
    """Nodes with the health `suspect`."""
    fatal: int
    """Nodes with the health `fatal`."""
    unknown: int
    """Nodes without a current report, or without any evaluated check."""
    partially_read: int
    """Nodes of which some data could not be read."""
    on_hold: int
    """Nodes with a hold of an operator."""
    maintenance: int
    """Nodes under maintenance."""
    cordoned_by_user: int
    """Nodes that others than nodeguard cordoned."""
    owned: dict[str, int] = {}
    """Number of nodes by the name of the webhook that owns them."""


class MarkCount(Struct, frozen=True):
    """A number of requested marks, and the number of their nodes."""

    marks: int
    """Number of marks."""
    nodes: int
    """Number of their nodes."""


class DryRunView(Struct, frozen=True):
    """Marks that checks in observe mode would set."""

    nodes: int = 0
    """Number of nodes that would be quarantined."""
    devices: int = 0
    """Number of GPUs that would be quarantined while their nodes stay in service."""
    suspect: int = 0
    """Number of nodes that would be marked suspect."""
    within_budget: int = 0
    """Number of marks that the budgets allow."""
    over_budget: int = 0
    """Number of marks that the budgets refuse."""
    budget_limits: tuple[ReasonCount, ...] = ()
    """The exhausted budgets with their limits."""
    otherwise_withheld: int = 0
    """Number of marks that would be withheld for other reasons."""
    reasons: tuple[ReasonCount, ...] = ()
    """The most frequent of these other reasons."""
    other_limits: ReasonCount = ReasonCount("", 0)
    """Sum of the budgets that `budget_limits` omits."""
    other_reasons: ReasonCount = ReasonCount("", 0)
    """Sum of the reasons that `reasons` omits."""


class BudgetView(Struct, frozen=True):
    """A budget."""

    name: str
    """What it limits, such as `fleet` or `check/gpu-lost`."""
    used: float
    """What is used, in nodes, with fractions where single GPUs are marked; in marks for `check/NAME`."""
    limit: float
    """The limit, in the unit of `used`."""
    suspect: float = 0.0
    """Number of suspect nodes that are counted separately, as where the limit is one node."""


class InjectedFaultView(Struct, frozen=True):
    """A fault that an operator injected on a node."""

    node: str
    check: str
    target: str
    health: Health
    by: str
    """The operator who injected it."""
    since: str
    until: str
    """When it ends."""
    refusal: str
    """Why it has no effect; empty for an accepted one."""


class RepeatOffenderView(Struct, frozen=True):
    """A component with repeated faults."""

    component: str
    node: str
    """Node on which it was last."""
    target: str
    """Target in which it was last."""
    faults: int
    """Number of its faults since `since`."""
    expected: float
    """Average number of faults of a component of this fleet in that time."""
    check: str
    """Check of its latest fault."""
    latest: str
    """When it failed last."""
    latest_age: float
    since: str
    """Begin of the time of `faults`."""
    age: float


class FleetStatus(Struct, frozen=True):
    """The status of the fleet. Injected faults are not counted in `incidents`, `withheld`, `reasons`,
    `pending`, `would_mark`, `dry_run` and `capacity`.
    """

    version: Literal[1]
    at: str
    """Time of the response."""
    obstacle: ObstacleView | None
    """What keeps this replica from writing; null if nothing does."""
    replica: ReplicaView
    policy: PolicyView
    agents: AgentCounts
    nodes: NodeCounts
    """Numbers of nodes by health."""
    paused: str
    """Why an operator or the policy has paused new marks; empty if none has."""
    frozen: str
    """Why no new marks are set while too many agents are stale; empty if this is not so."""
    marked: dict[str, MarkedCounts]
    """Numbers of marked nodes and GPUs, by mark."""
    withheld: MarkCount
    """Requested marks that are withheld."""
    reasons: tuple[ReasonCount, ...]
    """Why marks are withheld, the most frequent reason first: the first few."""
    would_mark: MarkCount
    """Marks that checks in observe mode request."""
    budgets: tuple[BudgetView, ...]
    """Budgets of the fleet, and others that are at least half used, highest use first."""
    budgets_omitted: int
    """Number of further budgets that are at least half used."""
    incidents: dict[IncidentState, int]
    """Number of incidents, by state."""
    worst: tuple[IncidentSummary, ...]
    """The most important incidents, similar ones as one: the first few."""
    topologies: tuple[TopologyView, ...] = ()
    """Ways in which nodes share hardware or software."""
    domains: dict[IncidentState, int] = {}
    """Number of degraded domains, by state of their mark."""
    degraded_domains: tuple[DomainSummary, ...] = ()
    """Degraded domains, those without a mark first: the first few."""
    suppressed_checks: tuple[SuppressedCheckView, ...] = ()
    """Checks that set no mark at present."""
    repeat_offenders: tuple[RepeatOffenderView, ...] = ()
    """Components that fail again and again, the worst first: the first few."""
    repeat_offenders_omitted: int = 0
    """Number of further repeat offenders."""
    pending: MarkCount = MarkCount(0, 0)
    """Marks in their grace period."""
    pending_seconds_left: float = 0.0
    """Seconds until the first of these grace periods ends."""
    dry_run: DryRunView = DryRunView()
    """What enforcement of all checks would mark, and how much of it the budgets allow."""
    refused_messages: tuple[RefusedMessages, ...] = ()
    """Nodes with messages that were refused in the past ten minutes: the latest few."""
    refused_omitted: int = 0
    """Number of further nodes with refused messages."""
    connection_shortage: str = ""
    """Why not all expected agents can connect, with the remedy; empty if all can."""
    notification_problem: str = ""
    """Webhooks that do not accept notifications, with the reason; empty for none."""
    history_problem: str = ""
    """Why the history is not written; empty if it is, or if there is none."""
    state_problem: str = ""
    """Why the state of an aggregator without Kubernetes is not stored; empty if it is."""
    refused_requests: tuple[RefusedRequestView, ...] = ()
    """Requests that the Kubernetes API refuses this replica for lack of a right or of the resource."""
    incidents_omitted: OmittedIncidents = OmittedIncidents()
    """Incidents that are not recorded because of the limits of a node and of the fleet."""
    injected_faults: tuple[InjectedFaultView, ...] = ()
    """Faults that operators injected, accepted ones first: the first few."""
    injected_faults_omitted: int = 0
    """Number of further injected faults."""
    injected_faults_accepted: int = 0
    """Number of all accepted injected faults."""
    other_reasons: ReasonCount = ReasonCount("", 0)
    """Sum of the reasons that `reasons` omits; its text is their number."""
    being_written: MarkCount = MarkCount(0, 0)
    """Granted marks that are not observed yet, for at most 5 s."""
    worst_omitted: int = 0
    """Number of further rows like those of `worst`."""
    frozen_since: str = ""
    """Time since which `frozen` applies; empty if it does not."""
    frozen_age: float = 0.0
    """Seconds since `frozen_since`."""
    capacity: CapacityView = CapacityView()
    """Nodes by whether they take new work."""
    latest_end: EndedFaultView | None = None
    """The fault that ended last, within the past day; null for none. Warnings, parts of other incidents,
    recorded false alarms and injected faults do not count."""
    drains: tuple[DrainView, ...] = ()
    """Drains that are not finished, and resources with work that stays for now: the first few; empty
    on a replica that does not lead."""
    drains_omitted: int = 0
    """Number of further drains."""
    failed_drains: tuple[ActionView, ...] = ()
    """Drains that ended with pods left, or may have, on nodes that are still quarantined: the first few."""
    failed_drains_omitted: int = 0
    """Number of further failed drains."""
    drained_jobs: tuple[str, ...] = ()
    """Jobs with pods in the recorded drains of present quarantines, those of the latest first: the first
    few."""
    drained_jobs_omitted: int = 0
    """Number of further ones."""
    job_outcomes: tuple[JobOutcomeView, ...] = ()
    """What drains do with the pods of these jobs, at most 64."""
    full_budgets: tuple[ReasonCount, ...] = ()
    """Budgets that refuse withheld marks, with their limits, most marks first: the first few."""
    other_full_budgets: ReasonCount = ReasonCount("", 0)
    """Sum of the budgets that `full_budgets` omits."""
