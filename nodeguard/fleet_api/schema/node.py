"""Schema of nodes: one node in full, and the list of nodes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet.decide.release import WaitKind
from nodeguard.fleet_api.schema.action import ActionView
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.fleet_api.schema.drain import DrainView
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.job import JobOutcomeView, RejectedPodsView
from nodeguard.fleet_api.schema.replica import RefusedMessages
from nodeguard.fleet_api.schema.status import BudgetView, InjectedFaultView, RepeatOffenderView
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState


class ReleaseWaitView(Struct, frozen=True):
    """The condition for the release of a mark."""

    on: WaitKind
    """What the release waits for."""
    message: str
    until: str = ""
    """End of the soak period; empty for another condition."""
    seconds_left: float = 0.0
    """Seconds until then."""


class MarkView(Struct, frozen=True):
    """A mark, with the check that requested it."""

    mark: str
    device: str
    """The marked GPU, by its name in the cluster; empty for the node."""
    check: str
    """The check that requested it; of `domain-degraded`, the fault class of the domain."""
    target: str
    """The target, such as `gpu/0000:3b:00`; of `domain-degraded`, the domain."""
    targets: tuple[str, ...]
    component: str
    fault_class: str
    """Value of the taint."""
    since: str
    age: float
    written: bool
    """Whether the Node or the device has it already."""
    wait: ReleaseWaitView
    """What its release waits for."""
    injected: bool = False
    """Whether an operator injected the fault."""


class FindingView(Struct, frozen=True):
    """A finding of the node's agent."""

    check: str
    target: str
    targets: tuple[str, ...]
    component: str
    hardware: Hardware | None
    """Names of the GPU for a person who has to find it; null for another target."""
    health: Health
    data_status: DataStatus
    action: Action
    since: str
    age: float
    message: str
    note: str
    """A limit of the finding, in words; empty for none."""
    evidence: tuple[str, ...]
    state: IncidentState | None
    """State of the mark that it requests; `Open` if the mark of its domain covers it; null for no request."""
    reason: str
    """Why the mark is in this state."""
    until: str = ""
    """End of the grace period of a pending mark; empty for none."""
    seconds_left: float = 0.0
    injected: bool = False
    """Whether an operator injected it."""
    how: tuple[str, ...] = ()
    """Commands that carry out the action, in their order; empty if there are none."""
    remedy: str = ""
    """What to do, from its check; empty if this aggregator lacks the check, or for another action."""
    evidence_omitted: int = 0
    """Number of pieces of evidence that the agent did not report."""
    explained_by: str = ""
    """Name of the incident of a domain, a check or a job that explains the finding; empty for none."""


class MarkRequestView(Struct, frozen=True):
    """A requested mark that is not set, with the reason."""

    mark: str
    check: str
    target: str
    device: str
    since: str
    age: float
    reason: str
    until: str = ""
    """End of the grace period of a pending mark; empty for none."""
    seconds_left: float = 0.0
    """Seconds until then."""
    injected: bool = False
    """Whether an operator injected the fault."""


class ChargeView(Struct, frozen=True):
    """A charge to the budget of a check."""

    check: str
    device: str
    """The marked GPU, by its name in the cluster; empty for the node."""
    at: str
    """When the mark was charged."""
    age: float
    ended: str = ""
    """Time of the release of the mark; empty while the charge is active."""
    count: int = 0
    """Number of recent releases; each doubles the soak period."""
    injected: bool = False
    """Whether every fault of the mark is injected."""


class UnreadableView(Struct, frozen=True):
    """Data of a node that could not be read."""

    source: str
    """Name of the source."""
    readings: str
    """What could not be read."""
    reason: str
    targets: tuple[str, ...]


class NodeView(Struct, frozen=True):
    """A node in full."""

    version: Literal[1]
    at: str
    node: str
    uid: str
    """Identity of the Node in the cluster."""
    health: str
    """Current health; `unknown` without a current report or without any evaluated check."""
    reported: str
    """Health of the latest report; empty for none."""
    data_status: DataStatus
    health_known: bool
    """Whether a check could be evaluated."""
    last_report: str
    """Time of the latest report; empty before the first."""
    last_report_age: float | None
    stale: bool | None
    """Whether the node has no current report; null where no report is read."""
    boot_id: str
    """Identity of the node's present boot."""
    agent_version: str
    """Version of nodeguard there."""
    catalogue_version: str
    """Version of its checks."""
    driver: str
    platform: str
    gpus: int
    """Lost GPUs too, as far as these are counted."""
    pool: str
    domains: tuple[str, ...]
    """Paths of its failure domains."""
    cordoned_by_user: bool
    """Whether an operator cordoned it."""
    cordoned: bool
    """Whether nodeguard cordoned it."""
    hold: str
    """Reason of the hold; empty for none."""
    maintenance: str
    """Reason of the maintenance; empty for none."""
    marks: tuple[MarkView, ...]
    """Its marks."""
    findings: tuple[FindingView, ...]
    """Its findings."""
    withheld: tuple[MarkRequestView, ...]
    """Requested marks that are withheld."""
    would_mark: tuple[MarkRequestView, ...]
    """Marks that checks in observe mode request."""
    charges: tuple[ChargeView, ...]
    """Charges of its marks to the budgets of checks."""
    budgets: tuple[BudgetView, ...]
    """Budgets to which marks of the node are charged."""
    unreadable: tuple[UnreadableView, ...]
    """Data of the node that could not be read."""
    unknown_taints: tuple[str, ...]
    """Taints with nodeguard's keys that nodeguard did not set; they stay."""
    incidents: tuple[IncidentSummary, ...]
    """Its unresolved incidents."""
    repeat_offenders: tuple[RepeatOffenderView, ...] = ()
    """Repeat offenders that were last on this node."""
    pending: tuple[MarkRequestView, ...] = ()
    """Requested marks in their grace period."""
    owner: str = ""
    """The webhook that owns the node; empty for none."""
    advisory: bool = False
    """Whether marks are advice, as without a cluster."""
    refused_messages: RefusedMessages | None = None
    """Messages of its agent that were refused in the past ten minutes; null for none."""
    incidents_omitted: int = 0
    """Number of incidents of the node above the limits."""
    jobs: tuple[str, ...] = ()
    """Jobs on the node, as far as they were read."""
    job_outcomes: tuple[JobOutcomeView, ...] = ()
    """What drains in the present quarantine do with the pods of these jobs, at most 64; nothing else is known
    of a job without one."""
    rejected_pods: RejectedPodsView | None = None
    """Pods that its kubelet rejected while an incident is open and fatal; null for none that is known."""
    injected_faults: tuple[InjectedFaultView, ...] = ()
    """Faults that operators injected on it, refused ones too; `findings` has the accepted ones."""
    findings_omitted: int = 0
    """Number of findings that its report omits because of the limit of a report."""
    actions: tuple[ActionView, ...] = ()
    """The latest requests to its agent: those of the past day, and those that still run."""
    actions_omitted: int = 0
    """Number of further actions."""
    record_problem: str = ""
    """Why the record of the marks is not on the node, although they are; empty if it is."""
    drains: tuple[DrainView, ...] = ()
    """Its drains that are not finished, and quarantined resources with work that stays for now; empty on a
    replica that does not lead."""
    drains_known_by: str = ""
    """The leader, for a quarantined node on another replica while the policy allows drains: only the leader
    knows them. Empty otherwise."""


class NodeSummary(Struct, frozen=True):
    """A node in a list."""

    node: str
    health: str
    """Current health; `unknown` without a current report or without any evaluated check."""
    stale: bool | None
    """Whether the node has no current report; null where no report is read."""
    marks: tuple[str, ...] = ()
    """Marks of the node and its devices."""
    withheld: int = 0
    """Number of requested marks that are withheld."""
    would_mark: int = 0
    """Number of marks that checks in observe mode request."""
    hold: str = ""
    """Reason of the hold; empty for none."""
    maintenance: str = ""
    """Reason of the maintenance; empty for none."""
    pending: int = 0
    """Number of marks in their grace period."""
    findings: int = 0
    """Number of active findings."""
    worst: str = ""
    """Check of the worst finding; empty for none."""
    message: str = ""
    """Message of the worst finding."""
    last_report_age: float | None = None
    """Seconds since the latest report; null for none."""
    driver: str = ""
    platform: str = ""
    gpus: int = 0
    """Lost GPUs too, as far as these are counted."""
    pool: str = ""
    injected: tuple[str, ...] = ()
    """Checks of injected faults until their marks are released; no count includes them."""
    work: WorkState = WorkState.WORKING
    """Whether the node takes new work."""


class NodeList(Struct, frozen=True):
    """Every node of the fleet, by name."""

    version: Literal[1]
    at: str
    nodes: tuple[NodeSummary, ...]
    """The nodes."""
