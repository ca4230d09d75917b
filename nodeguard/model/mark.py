"""Marks: what nodeguard wants written on Nodes and devices, and the record of why beside them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.node import PREFIX, NodeCondition, Taint

NO_SCHEDULE = "NoSchedule"

# The annotation that holds a Record, and the one that holds the epoch of the lease it was written under.
STATE_ANNOTATION = f"{PREFIX}state"
EPOCH_ANNOTATION = f"{PREFIX}epoch"

# People's own annotations: do not touch; under maintenance. The value says why.
HOLD_ANNOTATION = f"{PREFIX}hold"
MAINTENANCE_ANNOTATION = f"{PREFIX}maintenance"


# The taint of Nodes whose domain is degraded.
DEGRADED_TAINT = f"{PREFIX}domain-degraded"


class Mark(StrEnum):
    """What keeps work away, worst first: `quarantine` all of it, `suspect` that of gangs."""

    QUARANTINE = "quarantine"
    SUSPECT = "suspect"

    @property
    def key(self) -> str:
        """Key of the taint that is this mark."""
        return f"{PREFIX}{self.value}"


class MarkCause(Struct, frozen=True, omit_defaults=True):
    """One reason why a mark stands: a check's finding.

    check, target, slots, part: as in model.finding.Finding. word: the taint's value, the class of the fault.
    since: seconds since the epoch at which this reason was added to the mark.
    """

    mark: Mark
    check: str
    target: str
    fault_class: str
    since: float
    targets: tuple[str, ...] = ()
    component: str = ""


class Charge(Struct, frozen=True, omit_defaults=True):
    """What a mark was charged to when it was first set, for as long as anything of it stands: which check,
    and when, in seconds since the epoch. mark: its kind at that time, which aggregators of earlier versions
    count by; budgets of nodes follow from the causes.
    """

    check: str
    mark: Mark
    at: float


class PastCharge(Struct, frozen=True, omit_defaults=True):
    """A charge that was given back: of which check and since when, when it ended, and how often that has
    happened lately, which is what a soak doubles with. Times in seconds since the epoch.
    """

    check: str
    at: float
    ended: float
    occurrences: int = 1


class DegradedMark(Struct, frozen=True, omit_defaults=True):
    """That a domain in which a Node is, is to blame for what its nodes show, so that gangs keep off them all.

    domain: its path. name: the path under which it was first blamed, empty for the same. kinds: classes of
    faults. since: seconds since the epoch.
    """

    domain: str
    fault_classes: tuple[str, ...]
    since: float
    name: str = ""

    @property
    def topology(self) -> str:
        """The view that the domain is of, which is the taint's value."""
        return self.domain.partition("/")[0]


class MarkRecord(Struct, frozen=True, omit_defaults=True):
    """What is remembered on the Node or device itself: it is all that a new aggregator needs to go on.

    charge: None where nothing stands. cordoned: whether the cordon is nodeguard's own. degraded: which no
    charge is for.
    """

    causes: tuple[MarkCause, ...] = ()
    charge: Charge | None = None
    past_charges: tuple[PastCharge, ...] = ()
    cordoned: bool = False
    degraded: tuple[DegradedMark, ...] = ()


class DesiredNode(Struct, frozen=True):
    """What of nodeguard's a Node is to carry; what is not nodeguard's stays as it is.

    uid: of the Node that is meant; one of the same name and another uid is another. taints: all whose keys
    begin with PREFIX. state: text of the annotation STATE, empty for none. cordon: None leaves
    `unschedulable` as it is. condition: None leaves it as it is; one without a status takes it away.
    """

    uid: str
    name: str
    taints: tuple[Taint, ...] = ()
    state: str = ""
    cordon: bool | None = None
    condition: NodeCondition | None = None


class DeviceRule(Struct, frozen=True):
    """A DeviceTaintRule of nodeguard's.

    name: the object's. node, uid: of the Node that the device sits in. driver, pool, device: what it selects.
    state: text of the annotation STATE.
    """

    name: str
    node: str
    uid: str
    driver: str
    pool: str
    device: str
    taint: Taint
    state: str = ""
