"""Schema of nodes: one node in full, and the list of nodes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet.decide.release import WaitKind
from nodeguard.fleet_api.schema.status import (
    BudgetView,
    IncidentSummary,
    InjectedFaultView,
    RefusedMessages,
    RepeatOffenderView,
    WorkState,
)
from nodeguard.model.action import ActionState
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState


class ReleaseWaitView(Struct, frozen=True):
    """The condition for the release of a mark: see release.ReleaseWait.

    on: the kind of condition. until, seconds_left: end of a soak period.
    """

    on: WaitKind
    message: str
    until: str = ""
    seconds_left: float = 0.0


class MarkView(Struct, frozen=True):
    """A mark, with the check that requested it.

    device: the marked GPU, by its name in the cluster; empty for the node. written: whether the Node or the
    device has it already. fault_class: the taint's value. Of `domain-degraded`, target is the domain, and
    check the fault class for which the domain is degraded. injected: whether an operator injected the fault.
    """

    mark: str
    device: str
    check: str
    target: str
    targets: tuple[str, ...]
    component: str
    fault_class: str
    since: str
    age: float
    written: bool
    wait: ReleaseWaitView
    injected: bool = False


class FindingView(Struct, frozen=True):
    """A finding of the node's agent.

    state: of the mark that it requests (`Marked`, `Advised`, `Pending`, `Withheld`, `DryRun`, or `Open` where
    the mark of its domain covers it), None where it requests none; reason: of that state. until,
    seconds_left: end of the grace period of a pending mark. injected: whether an operator injected it.
    hardware: names of the GPU for a person who has to find it; None for another target. how: commands that
    carry out the action, in their order; empty if there are none. remedy: what to do, from the check; empty
    if this aggregator does not have the check, or if the finding has another action. evidence_omitted: number
    of pieces of evidence that the agent did not report.
    """

    check: str
    target: str
    targets: tuple[str, ...]
    component: str
    hardware: Hardware | None
    health: Health
    data_status: DataStatus
    action: Action
    since: str
    age: float
    message: str
    note: str
    evidence: tuple[str, ...]
    state: IncidentState | None
    reason: str
    until: str = ""
    seconds_left: float = 0.0
    injected: bool = False
    how: tuple[str, ...] = ()
    remedy: str = ""
    evidence_omitted: int = 0
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
    age: float
    changed_at: str
    """When the state changed last."""
    changed_age: float


class NodeView(Struct, frozen=True):
    """A node in full.

    health: current, `unknown` without a current report or without any evaluated check. reported: health of
    the latest report, empty for none. last_report, last_report_age: empty and None before the first report.
    stale: whether the node has no current report. cordoned_by_user, cordoned: cordon of an operator, and of
    nodeguard. hold, maintenance: the reason, empty for none. unknown_taints: taints with nodeguard's keys
    that nodeguard did not set; they stay. would_mark: requests of checks in observe mode; pending: in their
    grace period. owner: the webhook that owns the node, empty for none. advisory: whether marks are advice,
    as without a cluster. budgets: those that marks of the node are charged to. refused_messages: None for
    none in the past ten minutes. incidents_omitted: number of incidents of the node above the limits. jobs:
    on the node, as far as they were read. injected_faults: that operators injected, refused ones too; the
    findings have the accepted ones. findings_omitted: number of findings above those of a report.
    """

    version: Literal[1]
    at: str
    node: str
    uid: str
    health: str
    reported: str
    data_status: DataStatus
    health_known: bool
    last_report: str
    last_report_age: float | None
    stale: bool
    boot_id: str
    agent_version: str
    catalogue_version: str
    driver: str
    platform: str
    gpus: int
    pool: str
    domains: tuple[str, ...]
    cordoned_by_user: bool
    cordoned: bool
    hold: str
    maintenance: str
    marks: tuple[MarkView, ...]
    findings: tuple[FindingView, ...]
    withheld: tuple[MarkRequestView, ...]
    would_mark: tuple[MarkRequestView, ...]
    charges: tuple[ChargeView, ...]
    budgets: tuple[BudgetView, ...]
    unreadable: tuple[UnreadableView, ...]
    unknown_taints: tuple[str, ...]
    incidents: tuple[IncidentSummary, ...]
    repeat_offenders: tuple[RepeatOffenderView, ...] = ()
    pending: tuple[MarkRequestView, ...] = ()
    owner: str = ""
    advisory: bool = False
    refused_messages: RefusedMessages | None = None
    incidents_omitted: int = 0
    jobs: tuple[str, ...] = ()
    injected_faults: tuple[InjectedFaultView, ...] = ()
    findings_omitted: int = 0
    actions: tuple[ActionView, ...] = ()
    """The latest requests to its agent, of a day and those that still run."""
    actions_omitted: int = 0


class NodeSummary(Struct, frozen=True):
    """A node in a list. health: see NodeView. marks: of the node and its devices. findings: number of active
    findings; worst: check of the worst finding, empty for none; message: its message. withheld, would_mark,
    pending: numbers of requested marks. hold, maintenance: the reason, empty for none. injected: checks of
    injected faults, until their marks are released; they are not among the findings and requested marks.
    work: whether the node takes new work.
    """

    node: str
    health: str
    stale: bool
    marks: tuple[str, ...] = ()
    withheld: int = 0
    would_mark: int = 0
    hold: str = ""
    maintenance: str = ""
    pending: int = 0
    findings: int = 0
    worst: str = ""
    message: str = ""
    last_report_age: float | None = None
    driver: str = ""
    platform: str = ""
    gpus: int = 0
    pool: str = ""
    injected: tuple[str, ...] = ()
    work: WorkState = WorkState.WORKING


class NodeList(Struct, frozen=True):
    """Every node of the fleet, by name."""

    version: Literal[1]
    at: str
    nodes: tuple[NodeSummary, ...]
