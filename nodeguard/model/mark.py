"""Marks: what nodeguard writes on Nodes and devices, and the record of their causes."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.finding import Health
from nodeguard.model.node import PREFIX, NodeCondition, Taint

NO_SCHEDULE = "NoSchedule"

# Annotations: the MarkRecord, and the epoch of the lease under which it was written.
STATE_ANNOTATION = f"{PREFIX}state"
EPOCH_ANNOTATION = f"{PREFIX}epoch"

# Annotations that operators set: do not touch; under maintenance. The value is the reason.
HOLD_ANNOTATION = f"{PREFIX}hold"
MAINTENANCE_ANNOTATION = f"{PREFIX}maintenance"


# Taint of the Nodes in a degraded domain.
DEGRADED_TAINT = f"{PREFIX}domain-degraded"


class Mark(StrEnum):
    """Kind of mark, worst first: `quarantine` keeps all work away, `suspect` only gang work."""

    QUARANTINE = "quarantine"
    SUSPECT = "suspect"

    @property
    def key(self) -> str:
        """Return the key of the mark's taint."""
        return f"{PREFIX}{self.value}"


class MarkKind(Struct, frozen=True):
    """The meaning of one kind of mark.

    health: severity of the findings that request it. excluded_work: the work that it keeps away. marked: the
    description of a marked node or device. condition_reason: of the Node's condition.
    """

    health: Health
    excluded_work: str
    marked: str
    condition_reason: str


# Worst first.
MARK_KINDS = {
    Mark.QUARANTINE: MarkKind(Health.FATAL, "all new work", "quarantined", "Quarantined"),
    Mark.SUSPECT: MarkKind(Health.SUSPECT, "new gang work", "marked suspect", "Suspect"),
}

# The kind of mark that a severity requests; others request none.
MARK_OF_HEALTH = {kind.health: mark for mark, kind in MARK_KINDS.items()}


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
    votes. since: seconds since the epoch.
    """

    domain: str
    fault_classes: tuple[str, ...]
    since: float
    name: str = ""

    @property
    def topology(self) -> str:
        """Return the domain's topology, which is the value of the taint."""
        return self.domain.partition("/")[0]


class MarkRecord(Struct, frozen=True, omit_defaults=True):
    """The record in the annotation of a Node or device: all that a new aggregator needs to continue.

    charge: None without an active mark. cordoned: whether nodeguard set the cordon. degraded: the degraded
    domains, which are charged to a budget of their own.
    """

    causes: tuple[MarkCause, ...] = ()
    charge: Charge | None = None
    past_charges: tuple[PastCharge, ...] = ()
    cordoned: bool = False
    degraded: tuple[DegradedMark, ...] = ()


class DesiredNode(Struct, frozen=True):
    """The desired nodeguard fields of a Node; all other fields stay unchanged.

    uid: of the Node; a Node of the same name with another uid is not written. taints: all with keys that
    start with PREFIX. state: value of STATE_ANNOTATION, empty for none. cordon: None leaves `unschedulable`
    unchanged. condition: None leaves it unchanged; one without a status removes it.
    """

    uid: str
    name: str
    taints: tuple[Taint, ...] = ()
    state: str = ""
    cordon: bool | None = None
    condition: NodeCondition | None = None


class DeviceRule(Struct, frozen=True):
    """A DeviceTaintRule that nodeguard owns.

    name: of the object. node, uid: of the Node with the device. driver, pool, device: the selector. state:
    value of STATE_ANNOTATION.
    """

    name: str
    node: str
    uid: str
    driver: str
    pool: str
    device: str
    taint: Taint
    state: str = ""
