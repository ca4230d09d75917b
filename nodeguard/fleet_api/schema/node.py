"""Schema of nodes: one node in full, and the list of nodes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet.decide.release import WaitKind
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.fleet_api.schema.status import (
    BudgetView,
    IncidentSummary,
    InjectedFaultView,
    RefusedMessages,
    RepeatOffenderView,
)
from nodeguard.model.action import ActionState
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState


class ReleaseWaitView(Struct, frozen=True):
    """The condition for the release of a mark.

    on: the kind of condition. until, seconds_left: end of a soak period.
    """

    on: WaitKind
    message: str
    until: str = ""
    seconds_left: float = 0.0


class MarkView(Struct, frozen=True):
    """A mark, with the check that requested it."""

    mark: str
    device: str
    """The marked GPU, by its name in the cluster; empty for the node."""
    check: str
    """Of `domain-degraded`, the fault class for which the domain is degraded."""
    target: str
    """Of `domain-degraded`, the domain."""
    targets: tuple[str, ...]
    component: str
    fault_class: str
    """Value of the taint."""
    since: str
    age: float
    written: bool
    """Whether the Node or the device has it already."""
    wait: ReleaseWaitView
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
    """Of the mark that it requests; `Open` where the mark of its domain covers it, null for no request."""
    reason: str
    """Of the state."""
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
    """A requested mark that is not set, with the reason. until, seconds_left, injected: see FindingView."""

    mark: str
    check: str
    target: str
    device: str
    since: str
    age: float
    reason: str
    until: str = ""
    seconds_left: float = 0.0
    injected: bool = False


class ChargeView(Struct, frozen=True):
    """A charge to the budget of a check. device: see MarkView. ended: time of the release of the mark,
    empty while the charge is active. count: recent releases; each doubles the soak period. injected: whether
    every fault of the mark is injected.
    """

    check: str
    device: str
    at: str
    age: float
    ended: str = ""
    count: int = 0
    injected: bool = False


class UnreadableView(Struct, frozen=True):
    """Unread signals of a node: their source, readings, targets and the reason."""

    source: str
    readings: str
    reason: str
    targets: tuple[str, ...]


class ActionView(Struct, frozen=True):
    """A request of an operator to the agent of a node, with its last attempt."""

    kind: str
    """An ActionKind, or one of a newer version."""
    purpose: str
    """What it does, after `to`."""
    request: str
    """Who requested it, and when."""
    incident: str
    """Name of the incident that it clears; empty for none."""
    state: ActionState
    message: str
    """The answer of the agent, or why there is none; empty before."""
    created_at: str
    """When it was requested."""
    age: float
    changed_at: str
    """When the state changed last."""
    changed_age: float


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
    """Empty before the first report."""
    last_report_age: float | None
    stale: bool
    """Whether the node has no current report."""
    boot_id: str
    """The present boot."""
    agent_version: str
    """Version of nodeguard there."""
    catalogue_version: str
    """Version of its checks."""
    driver: str
    platform: str
    gpus: int
    pool: str
    domains: tuple[str, ...]
    """Paths of its failure domains."""
    cordoned_by_user: bool
    """Whether an operator cordoned it."""
    cordoned: bool
    """Whether nodeguard cordoned it."""
    hold: str
    """The reason; empty for none."""
    maintenance: str
    """The reason; empty for none."""
    marks: tuple[MarkView, ...]
    findings: tuple[FindingView, ...]
    withheld: tuple[MarkRequestView, ...]
    would_mark: tuple[MarkRequestView, ...]
    """Requests of checks in observe mode."""
    charges: tuple[ChargeView, ...]
    budgets: tuple[BudgetView, ...]
    """Those that marks of the node are charged to."""
    unreadable: tuple[UnreadableView, ...]
    unknown_taints: tuple[str, ...]
    """Taints with nodeguard's keys that nodeguard did not set; they stay."""
    incidents: tuple[IncidentSummary, ...]
    repeat_offenders: tuple[RepeatOffenderView, ...] = ()
    pending: tuple[MarkRequestView, ...] = ()
    """Requests in their grace period."""
    owner: str = ""
    """The webhook that owns the node; empty for none."""
    advisory: bool = False
    """Whether marks are advice, as without a cluster."""
    refused_messages: RefusedMessages | None = None
    """Null for none in the past ten minutes."""
    incidents_omitted: int = 0
    """Number of incidents of the node above the limits."""
    jobs: tuple[str, ...] = ()
    """Jobs on the node, as far as they were read."""
    injected_faults: tuple[InjectedFaultView, ...] = ()
    """Those that operators injected, refused ones too; the findings have the accepted ones."""
    findings_omitted: int = 0
    """Number of findings above those of a report."""
    actions: tuple[ActionView, ...] = ()
    """The latest requests to its agent, of a day and those that still run."""
    actions_omitted: int = 0
    """Number of further actions."""


class NodeSummary(Struct, frozen=True):
    """A node in a list."""

    node: str
    health: str
    """As of NodeView."""
    stale: bool
    """Whether the node has no current report."""
    marks: tuple[str, ...] = ()
    """Of the node and its devices."""
    withheld: int = 0
    """Number of such requested marks, as are `would_mark` and `pending`."""
    would_mark: int = 0
    """Number of marks that checks in observe mode request."""
    hold: str = ""
    """The reason; empty for none."""
    maintenance: str = ""
    """The reason; empty for none."""
    pending: int = 0
    """Number of marks in their grace period."""
    findings: int = 0
    """Number of active findings."""
    worst: str = ""
    """Check of the worst finding; empty for none."""
    message: str = ""
    """Of the worst finding."""
    last_report_age: float | None = None
    driver: str = ""
    platform: str = ""
    gpus: int = 0
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
