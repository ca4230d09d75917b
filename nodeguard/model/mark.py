"""Marks: what nodeguard writes on Nodes and devices, and the record of their causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import ClassVar, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.device import Device
from nodeguard.model.finding import Health
from nodeguard.model.node import PREFIX
from nodeguard.model.target import target_label

Name = TypeVar("Name", bound=str)

NO_SCHEDULE = "NoSchedule"

# Annotations: the MarkRecord, and the epoch of the lease under which it was written.
STATE_ANNOTATION = f"{PREFIX}state"
EPOCH_ANNOTATION = f"{PREFIX}epoch"

# Annotations that operators set: do not touch; under maintenance. The value is the reason.
HOLD_ANNOTATION = f"{PREFIX}hold"
MAINTENANCE_ANNOTATION = f"{PREFIX}maintenance"


class Mark(StrEnum):
    """Kind of mark, worst first: `quarantine` keeps all work away, `suspect` only gang work, and so does
    `domain-degraded`, on the nodes of a degraded domain.
    """

    QUARANTINE = "quarantine"
    SUSPECT = "suspect"
    DOMAIN_DEGRADED = "domain-degraded"

    @property
    def kind(self) -> MarkKind:
        """Return the meaning of the mark."""
        return MARK_KINDS[self]

    @property
    def key(self) -> str:
        """Return the key of the mark's taint."""
        return f"{PREFIX}{self.value}"

    @property
    def rank(self) -> int:
        """Return the rank: 0 for the worst."""
        return _RANKS[self]

    def covers(self, other: Mark) -> bool:
        """Return whether this mark on a node makes another one on it needless."""
        return other == self or other in self.kind.lesser


class Requester(StrEnum):
    """What requests a mark: a finding of the node, or the diagnosis of a domain."""

    FINDING = "finding"
    DOMAIN = "domain"


class MarkKind(Struct, frozen=True, kw_only=True):
    """The meaning of one kind of mark: code that differs between kinds asks for these values."""

    requester: Requester
    """What requests the mark. A mark that a finding requests is reported as an unhealthy node."""
    health: Health | None = None
    """Severity of the findings that request it; None if no finding does."""
    gang_only: bool = False
    """Whether single-node work may still run."""
    lesser: frozenset[Mark] = frozenset()
    """Kinds that are not set on a node with this mark, as it keeps their work away too."""
    budget: str = ""
    """Field of `policy.Budget` with the limit of the marked nodes: `fleet` counts capacity and may use the
    reserve; `suspect` counts whole nodes and may not; `degraded` counts the nodes of domains. Empty for a
    mark that no budget limits."""
    grace_period: str = ""
    """Field of `policy.GracePeriods`; empty for no grace period."""
    on_device: bool = False
    """Whether a device can carry the mark instead of its node."""
    cordons: bool = False
    """Whether the mark cordons the Node if the policy asks for it."""
    drains: bool = False
    """Whether the work on the faulty hardware may be evicted if the policy asks for it."""
    style: str
    """Style of its name on a terminal and on the status page."""
    marked: str
    """Description of a marked node or device: `it is quarantined`."""
    effect: str
    """What nodeguard does with a scope, which is the argument of the format: `quarantine node a`."""

    @property
    def work(self) -> str:
        """Return the work that the mark keeps away."""
        return "new gang work" if self.gang_only else "new work"

    @property
    def excluded_work(self) -> str:
        """Return the work that the mark keeps away from a whole node, as the subject of a sentence."""
        return self.work if self.gang_only else f"all {self.work}"


MARK_KINDS = {
    Mark.QUARANTINE: MarkKind(
        requester=Requester.FINDING,
        health=Health.FATAL,
        lesser=frozenset({Mark.SUSPECT}),
        budget="fleet",
        grace_period="quarantine",
        on_device=True,
        cordons=True,
        drains=True,
        style="fatal",
        marked="quarantined",
        effect="quarantine {}",
    ),
    Mark.SUSPECT: MarkKind(
        requester=Requester.FINDING,
        health=Health.SUSPECT,
        gang_only=True,
        budget="suspect",
        grace_period="suspect",
        style="suspect",
        marked="marked suspect",
        effect="mark {} suspect",
    ),
    Mark.DOMAIN_DEGRADED: MarkKind(
        requester=Requester.DOMAIN,
        gang_only=True,
        budget="degraded",
        style="suspect",
        marked="in a degraded domain",
        effect="keep new gang work off {}",
    ),
}
if [*MARK_KINDS] != [*Mark]:
    raise AssertionError("MARK_KINDS needs each member of Mark, in the same order: add the missing kind")

_RANKS: dict[str, int] = {mark: rank for rank, mark in enumerate(Mark)}

# The kind of mark that a severity requests; others request none.
MARK_OF_HEALTH = {kind.health: mark for mark, kind in MARK_KINDS.items() if kind.health is not None}

# The kinds that findings request, and those that a device can carry; worst first.
FINDING_MARKS = tuple(mark for mark in Mark if mark.kind.requester == Requester.FINDING)
DEVICE_MARKS = tuple(mark for mark in Mark if mark.kind.on_device)

# The kinds with work that may be evicted.
DRAIN_MARKS = tuple(mark for mark in Mark if mark.kind.drains)


def worst(marks: Iterable[Name]) -> Name | None:
    """Return the worst of some kinds of mark; None for none."""
    return min(marks, key=mark_rank, default=None)


def mark_rank(name: str) -> int:
    """Return the rank of a kind that a response names: 0 for the worst, the last one for an unknown kind."""
    return _RANKS.get(name, len(_RANKS))


def mark_kind(name: str) -> MarkKind:
    """Return the meaning of a kind that a response names: of a kind of a newer version only its name."""
    if name in MARK_KINDS:
        return Mark(name).kind
    return MarkKind(
        requester=Requester.FINDING, style="suspect", marked=f"marked {name}", effect=f"mark {{}} {name}"
    )


class MarkCause(Struct, frozen=True, omit_defaults=True):
    """One cause of a mark: a check's finding.

    check, target, targets, component: as in Finding. fault_class: the value of the taint. since: when this
    cause was added to the mark, seconds since the epoch. injected: whether an operator injected the fault.
    """

    mark: Mark
    check: str
    target: str
    fault_class: str
    since: float
    targets: tuple[str, ...] = ()
    component: str = ""
    injected: bool = False

    @property
    def taint_value(self) -> str:
        """Return the value of the mark's taint."""
        return self.fault_class

    @property
    def text(self) -> str:
        """Return the mark and its cause as text."""
        return f"{self.mark}: {self.check} on {target_label(self.target)}"


class Charge(Struct, frozen=True, omit_defaults=True):
    """The budget charge of an active mark: the check that first set it, and when (seconds since the epoch).

    mark: its kind at that time. Node budgets follow from the causes, not from this field. injected: whether
    every fault of the mark was injected, so that its charge is forgotten with the mark.
    """

    check: str
    mark: Mark
    at: float
    injected: bool = False


class PastCharge(Struct, frozen=True, omit_defaults=True):
    """A released charge: its check, when it began and ended (seconds since the epoch).

    occurrences: recent charges of this check; the soak period doubles with each.
    """

    check: str
    at: float
    ended: float
    occurrences: int = 1


class DegradedMark(Struct, frozen=True, omit_defaults=True):
    """A degraded domain that contains the Node, so that gang work is kept away from it.

    domain: its path. name: the path when it first became degraded, empty if unchanged. fault_classes: of the
    votes. since: seconds since the epoch. The other fields are those of MarkCause: no check requests it.
    """

    domain: str
    fault_classes: tuple[str, ...]
    since: float
    name: str = ""

    check: ClassVar[str] = ""
    targets: ClassVar[tuple[str, ...]] = ()
    component: ClassVar[str] = ""
    injected: ClassVar[bool] = False

    @property
    def mark(self) -> Mark:
        """Return the kind of mark."""
        return Mark.DOMAIN_DEGRADED

    @property
    def target(self) -> str:
        """Return the domain."""
        return self.domain

    @property
    def fault_class(self) -> str:
        """Return its fault classes, separated by commas."""
        return ",".join(self.fault_classes)

    @property
    def taint_value(self) -> str:
        """Return the value of the mark's taint: the domain's topology."""
        return self.domain.partition("/")[0]

    @property
    def text(self) -> str:
        """Return the mark and its domain as text."""
        return f"{self.mark}: {self.domain}"


class AcceptedMarks(Struct, frozen=True, omit_defaults=True):
    """The marks that the receiver of a webhook has accepted for a node that it owns.

    webhook: its name. marks: their kinds; one of a newer version is possible.
    """

    webhook: str
    marks: tuple[str, ...] = ()


class MarkRecord(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The record in the annotation of a Node or device: all that a new aggregator needs to continue.

    charge: None without an active mark. cordoned: whether nodeguard set the cordon; accepted: what the
    receiver of the webhook that owns the node has accepted, None for nothing: the executor that stores the
    record sets both, and no decision has them. degraded: the degraded domains, which are charged to a budget
    of their own. unknown: fields, and causes and a charge of a kind that a newer version wrote, as JSON;
    empty for none.
    """

    causes: tuple[MarkCause, ...] = ()
    charge: Charge | None = None
    past_charges: tuple[PastCharge, ...] = ()
    cordoned: bool = False
    degraded: tuple[DegradedMark, ...] = ()
    accepted: AcceptedMarks | None = None
    unknown: str = ""

    @property
    def all_causes(self) -> tuple[MarkCause | DegradedMark, ...]:
        """Return the causes of all active marks."""
        return (*self.causes, *self.degraded)

    @property
    def marks(self) -> set[Mark]:
        """Return the kinds of its active marks."""
        return {cause.mark for cause in self.all_causes}

    def only(self, keeps: Callable[[Mark], bool]) -> MarkRecord:
        """Return the record with the marks of some kinds only."""
        if all(map(keeps, self.marks)):
            return self
        causes = tuple(cause for cause in self.causes if keeps(cause.mark))
        return replace(
            self, causes=causes, degraded=tuple(mark for mark in self.degraded if keeps(mark.mark))
        )


class NodeMarks(Struct, frozen=True):
    """The records of a node and of its marked devices."""

    node: MarkRecord = MarkRecord()
    devices: dict[Device, MarkRecord] = {}

    def record_of(self, device: Device | None) -> MarkRecord:
        """Return the record of the node (None) or of one of its devices."""
        return self.node if device is None else self.devices.get(device, MarkRecord())

    def with_record(self, device: Device | None, record: MarkRecord) -> NodeMarks:
        """Return the marks with another record of the node (None) or of a device."""
        if device is None:
            return replace(self, node=record)
        others = {other: other_record for other, other_record in self.devices.items() if other != device}
        return replace(self, devices={**others, device: record} if record.causes else others)

    @property
    def carriers(self) -> tuple[Device | None, ...]:
        """Return the possible locations of records: the node (None) and its devices."""
        return (None, *self.devices)

    def causes(self) -> Iterator[tuple[Device | None, MarkCause]]:
        """Yield every cause with its location: the node (None) or a device."""
        for device in self.carriers:
            for cause in self.record_of(device).causes:
                yield device, cause

    @property
    def is_marked(self) -> bool:
        """Return whether any mark is active."""
        return bool(self.node.all_causes or self.node.charge or self.devices)

    def covers(self, mark: Mark) -> bool:
        """Return whether a worse mark of the whole node makes a mark of the node needless."""
        return any(mark in other.kind.lesser for other in self.node.marks)
