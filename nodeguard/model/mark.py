"""Marks: what nodeguard wants written on Nodes and devices, and the record of why beside them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.node import PREFIX, Condition, Taint

NO_SCHEDULE = "NoSchedule"

# The annotation that holds a Record, and the one that holds the epoch of the lease it was written under.
STATE = f"{PREFIX}state"
EPOCH = f"{PREFIX}epoch"

# People's own annotations: do not touch; under maintenance. The value says why.
HOLD = f"{PREFIX}hold"
MAINTENANCE = f"{PREFIX}maintenance"


# The taint of Nodes whose domain is degraded.
DEGRADED = f"{PREFIX}domain-degraded"


class Mark(StrEnum):
    """What keeps work away, worst first: `quarantine` all of it, `suspect` that of gangs."""

    QUARANTINE = "quarantine"
    SUSPECT = "suspect"

    @property
    def key(self) -> str:
        """Key of the taint that is this mark."""
        return f"{PREFIX}{self.value}"


class Cause(Struct, frozen=True, omit_defaults=True):
    """One reason why a mark stands: a check's finding.

    check, target, slots, part: as in model.finding.Finding. word: the taint's value, the class of the fault.
    since: seconds since the epoch at which this reason was added to the mark.
    """

    mark: Mark
    check: str
    target: str
    word: str
    since: float
    slots: tuple[str, ...] = ()
    part: str = ""


class Charge(Struct, frozen=True, omit_defaults=True):
    """What a mark was charged to when it was first set, for as long as anything of it stands: which check,
    and when, in seconds since the epoch. mark: its kind at that time, which aggregators of earlier versions
    count by; budgets of nodes follow from the causes.
    """

    check: str
    mark: Mark
    at: float


class Past(Struct, frozen=True, omit_defaults=True):
    """A charge that was given back: of which check and since when, when it ended, and how often that has
    happened lately, which is what a soak doubles with. Times in seconds since the epoch.
    """

    check: str
    at: float
    ended: float
    times: int = 1


class Degraded(Struct, frozen=True, omit_defaults=True):
    """That a domain in which a Node is, is to blame for what its nodes show, so that gangs keep off them all.

    domain: its path. name: the path under which it was first blamed, empty for the same. kinds: classes of
    faults. since: seconds since the epoch.
    """

    domain: str
    kinds: tuple[str, ...]
    since: float
    name: str = ""

    @property
    def view(self) -> str:
        """The view that the domain is of, which is the taint's value."""
        return self.domain.partition("/")[0]


class Record(Struct, frozen=True, omit_defaults=True):
    """What is remembered on the Node or device itself: it is all that a new aggregator needs to go on.

    charge: None where nothing stands. cordoned: whether the cordon is nodeguard's own. degraded: which no
    charge is for.
    """

    causes: tuple[Cause, ...] = ()
    charge: Charge | None = None
    past: tuple[Past, ...] = ()
    cordoned: bool = False
    degraded: tuple[Degraded, ...] = ()


class Desired(Struct, frozen=True):
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
    condition: Condition | None = None


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
