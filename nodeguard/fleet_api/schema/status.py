"""Schema of the status of the fleet, and parts of several responses: budgets, incident summaries, versions.

VERSION 1: fields may be added; none is removed or changes its meaning. Times are RFC 3339, empty for none;
ages and durations are seconds by the aggregator's clock.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.capacity import CapacityView, MarkedCounts, ReasonCount
from nodeguard.fleet_api.schema.domain import DomainSummary, SuppressedCheckView, TopologyView
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState, WriteState

VERSION: Literal[1] = 1


class ReplicaView(Struct, frozen=True):
    """The aggregator replica that answers.

    leader: holder of the lease, `standalone` without a lease, empty if no replica holds it. is_leader:
    whether this replica holds it. is_active: whether it may write marks; inactive_reason: the reason if not.
    since, age: of its start. plan_age: seconds since its plan was made or found unchanged, None before the
    first.
    """

    leader: str
    is_leader: bool
    is_active: bool
    inactive_reason: str
    since: str
    age: float
    plan_age: float | None
    nodeguard_version: str
    """Version of nodeguard."""


class ObstacleView(Struct, frozen=True):
    """What keeps the replica that answers from writing marks. kind: `not-read`, `api-unreachable`,
    `api-refuses`, `writes-refused`, `standby`, `no-leader` or `few-reports`, which keep it from writing
    anything, or `few-agents`, which keeps it from marking most nodes. effect: what is not written. since,
    age: of its begin.
    """

    kind: str
    effect: str
    reason: str
    since: str
    age: float


class PolicyView(Struct, frozen=True):
    """The active policy.

    file: its path, empty for the built-in policy. error: the reason why a newer file is rejected. mode: mode
    of checks that no rule matches; rules: number of rules that set a mode. enforced, observed: patterns of
    checks in these rules, in order. observe_only: whether nothing is enforced, neither for nodes nor for
    domains.
    """

    file: str
    error: str
    mode: str
    rules: int
    enforced: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    observe_only: bool = False


class AgentCounts(Struct, frozen=True):
    """Numbers of agents by the reports that this replica has received.

    expected: one for each node. reported: agents that have reported to this replica. not_reporting: agents
    without a current report; stale: those among them that reported before, so that an old report exists.
    """

    expected: int
    reported: int
    not_reporting: int
    stale: int


class NodeCounts(Struct, frozen=True):
    """Nodes by health: ok, warning, suspect, fatal. unknown: no current report, or no evaluated check.
    partially_read: nodes with unread signals. on_hold, maintenance: set by operators. cordoned_by_user: not
    by nodeguard. owned: by the name of the webhook that owns them.
    """

    ok: int
    warning: int
    suspect: int
    fatal: int
    unknown: int
    partially_read: int
    on_hold: int
    maintenance: int
    cordoned_by_user: int
    owned: dict[str, int] = {}


class MarkCount(Struct, frozen=True):
    """A number of requested marks, and the number of their nodes."""

    marks: int
    nodes: int


class DryRunView(Struct, frozen=True):
    """Marks that checks in observe mode would set.

    nodes, devices: that would be quarantined; devices are single GPUs of nodes that would stay in service.
    suspect: nodes that would be marked suspect. within_budget, over_budget: numbers of marks that the budgets
    allow and refuse; budget_limits: the exhausted budgets with their limits. otherwise_withheld: marks that
    would be withheld for other reasons; reasons: the most frequent ones. other_limits, other_reasons: the
    sums of those that are left out.
    """

    nodes: int = 0
    devices: int = 0
    suspect: int = 0
    within_budget: int = 0
    over_budget: int = 0
    budget_limits: tuple[ReasonCount, ...] = ()
    otherwise_withheld: int = 0
    reasons: tuple[ReasonCount, ...] = ()
    other_limits: ReasonCount = ReasonCount("", 0)
    other_reasons: ReasonCount = ReasonCount("", 0)


class BudgetView(Struct, frozen=True):
    """A budget. used, limit: nodes; fractions where single GPUs are marked; marks for `check/NAME`. suspect:
    suspect nodes that are counted separately, as where the limit is one node.
    """

    name: str
    """What it limits, such as `fleet` or `check/gpu-lost`."""
    used: float
    limit: float
    suspect: float = 0.0


class StateGroup(Struct, frozen=True):
    """Incidents of one check and health in the same state. reason: why, without the details of a node; empty
    where the state says it. names: of the first few nodes. nodes: number of all.
    """

    state: IncidentState
    reason: str
    mark: str | None
    nodes: int
    names: tuple[str, ...]


class IncidentSummary(Struct, frozen=True):
    """An incident in a list.

    similar: number of incidents of the same check and health that this one represents; real and injected
    faults are apart. acknowledged: the operator, empty for none. domain: set for an incident of a failure
    domain, which has no node; the incident of a suppressed check has neither, and its resource is
    `check/NAME`. until, seconds_left: end of the grace period of a pending incident. action: the action that
    the finding recommends. message: the problem.
    injected: whether an operator injected the fault. hardware, write, guidance, jobs, jobs_omitted: as of
    IncidentView.
    mark: the most severe mark that is in effect for it. groups: the nodes of all incidents that this one
    represents, by state, those that still take work first; empty in a list of single incidents.
    """

    name: str
    """Name of the incident."""
    node: str
    resource: str
    """The failed target; `job/NAME` for the start of a job."""
    hardware: Hardware | None
    cause: str
    health: Health
    state: IncidentState
    since: str
    age: float
    scope: str
    """What is, or would be, kept from work."""
    summary: str
    """The problem, or why the mark is withheld."""
    acknowledged: str
    similar: int = 0
    domain: str = ""
    until: str = ""
    seconds_left: float = 0.0
    action: Action = Action.NONE
    message: str = ""
    injected: bool = False
    write: WriteState | None = None
    mark: str | None = None
    guidance: Guidance | None = None
    groups: tuple[StateGroup, ...] = ()
    jobs: tuple[str, ...] = ()
    jobs_omitted: int = 0


class EndedFaultView(Struct, frozen=True):
    """The fault that ended last. incident: its name. node, domain, resource: as of IncidentSummary.
    resolved_at, age: of its end.
    """

    incident: str
    cause: str
    node: str
    domain: str
    resource: str
    resolved_at: str
    age: float


class InjectedFaultView(Struct, frozen=True):
    """A fault that an operator injected on a node. by: the operator. until: its end.

    refusal: why it has no effect; empty for an accepted one.
    """

    node: str
    check: str
    target: str
    health: Health
    by: str
    since: str
    until: str
    refusal: str


class RepeatOffenderView(Struct, frozen=True):
    """A component with repeated faults.

    node, target: its last location. faults: number of its faults since `since`; expected: average number for
    a component of this fleet in that time. check: the check of the latest fault.
    """

    component: str
    node: str
    target: str
    faults: int
    expected: float
    check: str
    latest: str
    """When it failed last."""
    latest_age: float
    since: str
    age: float


class OmittedIncidents(Struct, frozen=True):
    """Incidents above the limits. nodes: number of their nodes; worst_nodes: those with most incidents."""

    incidents: int = 0
    """Number of incidents."""
    nodes: int = 0
    worst_nodes: tuple[str, ...] = ()


class RefusedMessages(Struct, frozen=True):
    """Agent messages of a node that the aggregator refuses, the latest one in the past ten minutes.

    reason: the label value in the metrics. message: the latest answer to the agent, with the remedy. latest,
    age: time of the latest refusal; since, since_age: of the first one. count: of messages since then.
    """

    node: str
    reason: str
    message: str
    count: int
    latest: str
    age: float
    since: str
    since_age: float


class RefusedRequestView(Struct, frozen=True):
    """Requests of one kind that the Kubernetes API refuses for lack of a right."""

    verb: str
    """Of the right, such as `patch`."""
    resource: str
    """Of the right, such as `nodes/status`."""
    reason: str
    """Error of the latest request, with the remedy."""
    since: str
    """Time of the first refusal."""
    age: float
    """Seconds since the first refusal."""


class FleetStatus(Struct, frozen=True):
    """The status of the fleet.

    obstacle: what keeps this replica from writing; null if nothing does. paused, frozen: reason of operators
    or of nodeguard to set no new mark; empty while marks may be set. frozen_since, frozen_age: since when.
    marked: by mark. withheld: requested marks that are not set; reasons: the most frequent. pending: marks in
    their grace period; pending_seconds_left: until the first of these ends. would_mark: marks of checks in
    observe mode; dry_run: details. budgets: the fleet's, and others that are at least half used, highest
    use first; budgets_omitted: number of others of these. incidents: by state. worst: the most important few.
    domains: degraded domains by state of their mark; degraded_domains: the first few, unmarked ones first.
    suppressed_checks: checks that set no mark at present. repeat_offenders: the worst few. refused_messages:
    of the latest few nodes; refused_omitted: number of other nodes. connection_shortage: reason why not all
    expected agents can connect, with the remedy; empty if all can. notification_problem: webhooks that do not
    accept notifications, with the reason; empty for none. history_problem: reason why the history is not
    written; empty if it is, or if there is none. incidents_omitted: see OmittedIncidents.
    injected_faults: the first few faults that operators injected, the accepted ones first;
    injected_faults_omitted: number of others; injected_faults_accepted: number of all accepted ones.
    other_reasons: the sum of the reasons that are left out of `reasons`; its text is their number.
    worst_omitted: number of further rows like those of `worst`. being_written: granted marks that are not
    observed yet, for at most 5 s.
    latest_end: the real fault that ended last, of those within a day; None for none. A warning, a part of
    another incident and a recorded false alarm are no faults.
    incidents, withheld, reasons, pending, would_mark, dry_run and capacity are without those of injected
    faults.
    """

    version: Literal[1]
    at: str
    obstacle: ObstacleView | None
    replica: ReplicaView
    policy: PolicyView
    agents: AgentCounts
    nodes: NodeCounts
    paused: str
    frozen: str
    marked: dict[str, MarkedCounts]
    withheld: MarkCount
    reasons: tuple[ReasonCount, ...]
    would_mark: MarkCount
    budgets: tuple[BudgetView, ...]
    budgets_omitted: int
    incidents: dict[IncidentState, int]
    worst: tuple[IncidentSummary, ...]
    topologies: tuple[TopologyView, ...] = ()
    """Ways in which nodes share hardware or software."""
    domains: dict[IncidentState, int] = {}
    degraded_domains: tuple[DomainSummary, ...] = ()
    suppressed_checks: tuple[SuppressedCheckView, ...] = ()
    repeat_offenders: tuple[RepeatOffenderView, ...] = ()
    repeat_offenders_omitted: int = 0
    """Number of other repeat offenders."""
    pending: MarkCount = MarkCount(0, 0)
    pending_seconds_left: float = 0.0
    dry_run: DryRunView = DryRunView()
    refused_messages: tuple[RefusedMessages, ...] = ()
    refused_omitted: int = 0
    connection_shortage: str = ""
    notification_problem: str = ""
    history_problem: str = ""
    refused_requests: tuple[RefusedRequestView, ...] = ()
    """What the Kubernetes API refuses the aggregator that answers, for lack of a right."""
    incidents_omitted: OmittedIncidents = OmittedIncidents()
    injected_faults: tuple[InjectedFaultView, ...] = ()
    injected_faults_omitted: int = 0
    injected_faults_accepted: int = 0
    other_reasons: ReasonCount = ReasonCount("", 0)
    being_written: MarkCount = MarkCount(0, 0)
    worst_omitted: int = 0
    frozen_since: str = ""
    frozen_age: float = 0.0
    capacity: CapacityView = CapacityView()
    latest_end: EndedFaultView | None = None
    full_budgets: tuple[ReasonCount, ...] = ()
    """The budgets that refuse withheld marks, with their limits, most marks first: the first few."""
    other_full_budgets: ReasonCount = ReasonCount("", 0)
    """The sum of the budgets that are left out of `full_budgets`."""
