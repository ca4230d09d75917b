"""What people are told of the fleet, as the API's JSON and the command line have it.

VERSION 1: fields may be added, none taken away or changed in meaning. Moments are written as RFC 3339, empty
for none; ages and lengths of time are seconds. What may be told of a finding's age is by the aggregator's
clock.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.domain import DomainSummary, SuppressedCheckView, TopologyView
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState

VERSION: Literal[1] = 1


class ReplicaView(Struct, frozen=True):
    """The aggregator that answers.

    leader: who holds the lease, `standalone` where there is none, empty where nobody does. leads: whether it
    is this one. acts: whether it may have anything written; waiting: why not, where it does not. since, age:
    of its start. plan_age: seconds since its latest plan, None before the first. nodeguard: its version.
    """

    leader: str
    is_leader: bool
    is_active: bool
    inactive_reason: str
    since: str
    age: float
    plan_age: float | None
    nodeguard_version: str


class PolicyView(Struct, frozen=True):
    """The policy in force.

    file: where it comes from, empty for the built-in one. error: why a newer one is rejected. mode: of checks
    that no rule matches; rules: how many set a mode. enforced, observed: patterns of checks for which rules
    do, in their order. observes: whether nothing at all is enforced, no failure domain either.
    """

    file: str
    error: str
    mode: str
    rules: int
    enforced: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    observe_only: bool = False


class AgentCounts(Struct, frozen=True):
    """Agents by what is heard of them.

    expected: one for each node of the fleet. heard: those that have spoken to this aggregator. silent: those
    that say nothing now; stale: those of them that did before, whose last report stands.
    """

    expected: int
    reported: int
    not_reporting: int
    stale: int


class NodeCounts(Struct, frozen=True):
    """Nodes by health. unknown: nothing is heard, or nothing could be judged. blind: those where something
    could not be read. held, maintenance: by people. out: kept from work by a person's cordon.
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


class MarkedCounts(Struct, frozen=True):
    """What carries a mark, as Nodes and device rules say. nodes: each by its worst mark; devices: single
    GPUs of nodes that go on working.
    """

    nodes: int = 0
    devices: int = 0


class ReasonCount(Struct, frozen=True):
    """Why marks are withheld, and how many are for that."""

    reason: str
    marks: int


class MarkCount(Struct, frozen=True):
    """Marks that are asked for, and of how many nodes."""

    marks: int
    nodes: int


class DryRunView(Struct, frozen=True):
    """What checks that are not enforced would mark.

    nodes, devices: that would be quarantined; devices are single GPUs of nodes that would go on working.
    suspect: nodes that would be marked suspect. within: how many of all these the budgets allow; over: how
    many they do not, and limits: of which budgets, with the limit in words. other: how many would be withheld
    for other reasons, and reasons: the most frequent of those.
    """

    nodes: int = 0
    devices: int = 0
    suspect: int = 0
    within_budget: int = 0
    over_budget: int = 0
    budget_limits: tuple[ReasonCount, ...] = ()
    otherwise_withheld: int = 0
    reasons: tuple[ReasonCount, ...] = ()


class BudgetView(Struct, frozen=True):
    """A budget. used, most: nodes that are charged to it, and that may be; parts of a node where single GPUs
    are marked. suspect: suspect nodes that are counted apart from these, as where the budget is one node. Of
    `check/NAME`: marks.
    """

    name: str
    used: float
    limit: float
    suspect: float = 0.0


class IncidentSummary(Struct, frozen=True):
    """An incident in short. alike: how many others there are of the same check and health, where only one of
    them is listed. acknowledged: by whom, empty for nobody. domain: of one of many nodes, which has no node;
    one of a check that is held has neither, and its resource is `check/NAME`. until, left: of a pending one,
    when its grace period ends, and the seconds to it.
    """

    name: str
    node: str
    resource: str
    cause: str
    health: Health
    state: IncidentState
    since: str
    age: float
    scope: str
    summary: str
    acknowledged: str
    similar: int = 0
    domain: str = ""
    until: str = ""
    seconds_left: float = 0.0


class RepeatOffenderView(Struct, frozen=True):
    """A part that fails again and again.

    node, slot: where it was seen last. faults: how many since a moment; expected: how many a part of this
    fleet has in that time. check: what told of the latest, which began at a moment.
    """

    component: str
    node: str
    target: str
    faults: int
    expected: float
    check: str
    latest: str
    latest_age: float
    since: str
    age: float


class OmittedIncidents(Struct, frozen=True):
    """Incidents for which there is no room. nodes: of how many. most: the nodes with the most of them."""

    incidents: int = 0
    nodes: int = 0
    worst_nodes: tuple[str, ...] = ()


class RefusedMessages(Struct, frozen=True):
    """Messages of a node that were refused in the past ten minutes.

    reason: a word, as in the metrics. message: the latest answer to the node's agent, with the remedy.
    count: how many messages. latest, age: when the latest came.
    """

    node: str
    reason: str
    message: str
    count: int
    latest: str
    age: float


class FleetStatus(Struct, frozen=True):
    """The fleet, in short.

    paused: why nothing new is marked, by people's word; frozen: why, by nodeguard's own; empty where it may
    be. marked: by mark. withheld: marks that are asked for and not set; reasons: the most frequent. pending:
    marks in their grace period; pending_left: seconds until the first of these ends. would: marks of checks
    that are not enforced; dry_run: what would become of them. ledgers: the fleet's, and others that are half
    full at least, fullest first; ledgers_more: how many more of these there are. incidents: by state. worst:
    what stands out. views: what nodes share. domains: those that are to blame, by state; blamed: the first
    few, those that are not marked before all others. held: checks that are not acted upon. lemons: parts that
    fail again and again, the worst few; lemons_more: how many more there are. refused: nodes whose messages
    were refused, the latest few; refused_more: how many more nodes. shortage: why not all expected agents can
    connect, and the remedy; empty where they can. left_out: incidents for which there is no room.
    """

    version: Literal[1]
    at: str
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
    domains: dict[IncidentState, int] = {}
    degraded_domains: tuple[DomainSummary, ...] = ()
    suppressed_checks: tuple[SuppressedCheckView, ...] = ()
    repeat_offenders: tuple[RepeatOffenderView, ...] = ()
    repeat_offenders_omitted: int = 0
    pending: MarkCount = MarkCount(0, 0)
    pending_seconds_left: float = 0.0
    dry_run: DryRunView = DryRunView()
    refused_messages: tuple[RefusedMessages, ...] = ()
    refused_omitted: int = 0
    connection_shortage: str = ""
    incidents_omitted: OmittedIncidents = OmittedIncidents()
