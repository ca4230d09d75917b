"""What people are told of one node, as the API's JSON has it: see forms."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet.release import On
from nodeguard.fleet_api.forms import IncidentLine, LedgerTold, LemonTold, RefusedMessages
from nodeguard.model.finding import Action, Health, Knowledge
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark

# What the mark is called of a node whose domain is to blame; others are called as model.mark.Mark has it.
DEGRADED = "domain-degraded"


class Wait(Struct, frozen=True):
    """What has to happen before a mark is released: see release.Stay. until, left: when a soak period ends,
    and the seconds to it.
    """

    on: On
    says: str
    until: str = ""
    left: float = 0.0


class MarkTold(Struct, frozen=True):
    """One reason why a mark stands.

    device: the single GPU that is marked, by its name in the cluster; empty for the node. written: whether it
    is on the Node or device already. word: the taint's value. Of DEGRADED, target is the domain, and check
    the class of faults that it is to blame for.
    """

    mark: str
    device: str
    check: str
    target: str
    slots: tuple[str, ...]
    part: str
    word: str
    since: str
    age: float
    written: bool
    wait: Wait


class FindingTold(Struct, frozen=True):
    """What the node's agent found.

    state: what became of the mark that it asks for (`Marked`, `Advised`, `Pending`, `Withheld`, `DryRun`, or
    `Open` where a mark of its domain stands in for it), None where it asks for none; why: in words. until,
    left: of a pending one, when the grace period ends, and the seconds to it.
    """

    check: str
    target: str
    slots: tuple[str, ...]
    part: str
    health: Health
    knowledge: Knowledge
    action: Action
    since: str
    age: float
    message: str
    note: str
    evidence: tuple[str, ...]
    state: State | None
    why: str
    until: str = ""
    left: float = 0.0


class WantTold(Struct, frozen=True):
    """A mark that is asked for and not set, and why; until, left: as of a finding."""

    mark: Mark
    check: str
    target: str
    device: str
    since: str
    age: float
    why: str
    until: str = ""
    left: float = 0.0


class ChargeTold(Struct, frozen=True):
    """What a mark was charged to. device: as of MarkTold. ended: when it was given back, empty while it
    stands. times: how often that has happened lately: each time doubles the soak.
    """

    check: str
    device: str
    at: str
    age: float
    ended: str = ""
    times: int = 0


class UnreadTold(Struct, frozen=True):
    """What could not be read on the node, of which slots, and why."""

    source: str
    what: str
    why: str
    slots: tuple[str, ...]


class NodePage(Struct, frozen=True):
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
    knowledge: Knowledge
    known: bool
    heard: str
    heard_age: float | None
    silent: bool
    boot_id: str
    agent: str
    catalogue: str
    driver: str
    platform: str
    gpus: int
    pool: str
    domains: tuple[str, ...]
    out: bool
    cordoned: bool
    hold: str
    maintenance: str
    marks: tuple[MarkTold, ...]
    findings: tuple[FindingTold, ...]
    withheld: tuple[WantTold, ...]
    would: tuple[WantTold, ...]
    charges: tuple[ChargeTold, ...]
    ledgers: tuple[LedgerTold, ...]
    unread: tuple[UnreadTold, ...]
    strange: tuple[str, ...]
    incidents: tuple[IncidentLine, ...]
    lemons: tuple[LemonTold, ...] = ()
    pending: tuple[WantTold, ...] = ()
    advised: bool = False
    refused: RefusedMessages | None = None
    left_out: int = 0


class NodeLine(Struct, frozen=True):
    """A node in short. health: as of NodePage, `unknown` where it is not known. marks: on it or its devices.
    withheld, would, pending: how many marks.
    """

    node: str
    health: str
    silent: bool
    marks: tuple[str, ...] = ()
    withheld: int = 0
    would: int = 0
    hold: bool = False
    maintenance: bool = False
    pending: int = 0


class NodeList(Struct, frozen=True):
    """Every node of the fleet, by name."""

    version: Literal[1]
    at: str
    nodes: tuple[NodeLine, ...]
