"""What people are told of one node, as the API's JSON has it: see forms."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet.decide.release import WaitKind
from nodeguard.fleet_api.schema.status import BudgetView, IncidentSummary, RefusedMessages, RepeatOffenderView
from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark

# What the mark is called of a node whose domain is to blame; others are called as model.mark.Mark has it.
DEGRADED = "domain-degraded"


class ReleaseWait(Struct, frozen=True):
    """What has to happen before a mark is released: see release.Stay. until, left: when a soak period ends,
    and the seconds to it.
    """

    on: WaitKind
    message: str
    until: str = ""
    seconds_left: float = 0.0


class MarkView(Struct, frozen=True):
    """One reason why a mark stands.

    device: the single GPU that is marked, by its name in the cluster; empty for the node. written: whether it
    is on the Node or device already. word: the taint's value. Of DEGRADED, target is the domain, and check
    the class of faults that it is to blame for.
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
    wait: ReleaseWait


class FindingView(Struct, frozen=True):
    """What the node's agent found.

    state: what became of the mark that it asks for (`Marked`, `Advised`, `Pending`, `Withheld`, `DryRun`, or
    `Open` where a mark of its domain stands in for it), None where it asks for none; why: in words. until,
    left: of a pending one, when the grace period ends, and the seconds to it.
    """

    check: str
    target: str
    targets: tuple[str, ...]
    component: str
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


class MarkRequestView(Struct, frozen=True):
    """A mark that is asked for and not set, and why; until, left: as of a finding."""

    mark: Mark
    check: str
    target: str
    device: str
    since: str
    age: float
    reason: str
    until: str = ""
    seconds_left: float = 0.0


class ChargeView(Struct, frozen=True):
    """What a mark was charged to. device: as of MarkTold. ended: when it was given back, empty while it
    stands. times: how often that has happened lately: each time doubles the soak.
    """

    check: str
    device: str
    at: str
    age: float
    ended: str = ""
    count: int = 0


class UnreadableView(Struct, frozen=True):
    """What could not be read on the node, of which slots, and why."""

    source: str
    readings: str
    reason: str
    targets: tuple[str, ...]


class NodeView(Struct, frozen=True):
    """Everything of one node.

    health: now, `unknown` where no report comes or nothing could be judged. reported: the health of the
    latest report, empty where none came or nothing could be judged. known: whether health is known. heard,
    heard_age: when its agent spoke last, empty and None where it never did to this aggregator. silent:
    whether it says nothing now. agent: its version. out: whether a person's cordon keeps work away; cordoned:
    whether the cordon is nodeguard's. hold, maintenance: why, empty for none. strange: taints with
    nodeguard's keys of which nothing is remembered; they are left alone. would: marks of checks that are not
    enforced; pending: marks in their grace period. advised: whether marks are advice, as without a cluster.
    ledgers: the budgets that the node counts to. lemons: parts in it that fail again and again. refused: None
    where none of its messages was refused in the past ten minutes. left_out: incidents for which there is no
    room.
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
    advisory: bool = False
    refused_messages: RefusedMessages | None = None
    incidents_omitted: int = 0


class NodeSummary(Struct, frozen=True):
    """A node in short. health: as of NodePage, `unknown` where it is not known. marks: on it or its devices.
    withheld, would, pending: how many marks.
    """

    node: str
    health: str
    stale: bool
    marks: tuple[str, ...] = ()
    withheld: int = 0
    would_mark: int = 0
    hold: bool = False
    maintenance: bool = False
    pending: int = 0


class NodeList(Struct, frozen=True):
    """Every node of the fleet, by name."""

    version: Literal[1]
    at: str
    nodes: tuple[NodeSummary, ...]
