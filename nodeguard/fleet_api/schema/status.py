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
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState, WriteState

VERSION: Literal[1] = 1


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


class StateGroup(Struct, frozen=True):
    """Incidents of one check and health in the same state."""

    state: IncidentState
    reason: str
    """Why they are in this state, without the details of a node; empty where the state explains it."""
    mark: str | None
    """The mark; null for none."""
    nodes: int
    """Number of nodes."""
    names: tuple[str, ...]
    """Names of the first few nodes."""


class IncidentSummary(Struct, frozen=True):
    """An incident in a list."""

    name: str
    """Name of the incident."""
    node: str
    """Name of the node; empty for the incident of a domain, a check or a job."""
    resource: str
    """The failed target; `check/NAME` for a suppressed check, `job/NAME` for the start of a job."""
    hardware: Hardware | None
    """Names of the GPU, as last known; null for another target."""
    cause: str
    """The check that explains most symptoms."""
    health: Health
    state: IncidentState
    since: str
    age: float
    scope: str
    """What is, or would be, kept from work."""
    summary: str
    """The problem, or why the mark is withheld."""
    acknowledged: str
    """The operator who acknowledged it; empty for none."""
    similar: int = 0
    """Number of incidents of the same check and health in this row; injected faults have their own row."""
    domain: str = ""
    """Path of the domain; empty for an incident that is not that of a domain."""
    until: str = ""
    """End of the grace period of a pending incident; empty for others."""
    seconds_left: float = 0.0
    """Seconds until then."""
    action: Action = Action.NONE
    """The action that the finding recommends."""
    message: str = ""
    """The problem."""
    injected: bool = False
    """Whether an operator injected the fault."""
    write: WriteState | None = None
    """Why a requested mark, or its removal, is not on its object; null if it is."""
    mark: str | None = None
    """The most severe mark that is in effect for it; null for none."""
    guidance: Guidance | None = None
    """What people do about a degraded domain; null for other incidents."""
    groups: tuple[StateGroup, ...] = ()
    """Nodes of all incidents in this row by state, those that still take work first; empty in a list of
    single incidents."""
    earlier: tuple[Health, ...] = ()
    """Of a row of one node: the healths of earlier rows of several nodes that have an incident of this node,
    too."""
    jobs: tuple[str, ...] = ()
    """The jobs on its nodes, as far as they were read."""
    jobs_omitted: int = 0
    """Number of further jobs."""


class EndedFaultView(Struct, frozen=True):
    """The fault that ended last."""

    incident: str
    """Name of its incident."""
    cause: str
    node: str
    """Name of the node; empty for a domain."""
    domain: str
    """Path of the domain; empty for none."""
    resource: str
    """The failed target."""
    resolved_at: str
    """When it ended."""
    age: float
    """Seconds since then."""


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


class OmittedIncidents(Struct, frozen=True):
    """Incidents that are not recorded because of the limits of a node and of the fleet."""

    incidents: int = 0
    """Number of incidents."""
    nodes: int = 0
    """Number of their nodes."""
    worst_nodes: tuple[str, ...] = ()
    """Nodes with most of these incidents."""


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
    full_budgets: tuple[ReasonCount, ...] = ()
    """Budgets that refuse withheld marks, with their limits, most marks first: the first few."""
    other_full_budgets: ReasonCount = ReasonCount("", 0)
    """Sum of the budgets that `full_budgets` omits."""
