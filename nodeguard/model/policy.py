"""The policy: which checks may mark nodes, how many, and when marks are released."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeguard.model.amounts import (
    END,
    CheckPattern,
    CheckPatterns,
    Count,
    Duration,
    GraceDuration,
    ReservedShare,
    Share,
    StaleShare,
    identifier,
)
from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass
from nodeguard.model.mark import MARK_KINDS, Mark

Name = Annotated[str, identifier("training", "pool-1")]
Labels = Annotated[dict[str, str], Meta(max_length=20)]
NodePattern = Annotated[
    str, Meta(pattern=rf"^[a-z0-9*?!\[\].-]+{END}", max_length=253, examples=["gpu-7", "rack-12-*"])
]
Text = Annotated[str, Meta(max_length=500)]
# The marks that findings request: model.mark.FINDING_MARKS.
Marks = Annotated[tuple[Literal["quarantine", "suspect"], ...], Meta(min_length=1, max_length=2)]
Timestamp = Annotated[datetime, Meta(tz=True, examples=["2027-01-31T18:00:00Z", "2027-01-31T18:00:00+01:00"])]


class Mode(StrEnum):
    """`observe`: report what would be done; `enforce`: do it."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ModeRule(Struct, frozen=True, forbid_unknown_fields=True):
    """The mode of some checks, `check` or `checks`, for some marks. The last rule that matches applies."""

    mode: Mode
    check: CheckPattern | UnsetType = UNSET
    checks: CheckPatterns | UnsetType = UNSET
    marks: Marks = ("quarantine", "suspect")


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that share a budget: those with all these labels. A node is in the first pool that matches.

    share: of the pool's nodes that may be marked at a time; default: `budget.pool`.
    """

    name: Name
    labels: Labels = {}
    share: Share | UnsetType = UNSET


class CheckLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes each check may mark: `new` within a time, and `active` at a time."""

    new: Count = 5
    within: Duration = 600.0
    active: Count = 15


class CheckOverride(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of some checks, `check` or `checks`; the default is `perCheck`. The first match applies."""

    check: CheckPattern | UnsetType = UNSET
    checks: CheckPatterns | UnsetType = UNSET
    new: Count | UnsetType = UNSET
    within: Duration | UnsetType = UNSET
    active: Count | UnsetType = UNSET

    def limit(self, default: CheckLimit) -> CheckLimit:
        """Return the limit of these checks. default: of each check."""
        return CheckLimit(
            self.new or default.new, self.within or default.within, self.active or default.active
        )


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes may be marked at a time. Each share is at least one node.

    fleet: of all nodes. fatalReserve: of the fleet budget, reserved for quarantine. pool: of each pool.
    domain: of each failure domain. suspect: of all nodes, for `suspect` marks. degradedDomains: of all nodes,
    in degraded domains; firstDegradedDomain: the same while there is only one; newDegradedDomainsPerHour:
    domains. perCheck: nodes of each check; checkOverrides: of some checks.
    """

    fleet: Share = 0.05
    reserve: ReservedShare = field(name="fatalReserve", default=0.2)
    pool: Share = 0.10
    domain: Share = 0.25
    suspect: Share = 0.05
    degraded: Share = field(name="degradedDomains", default=0.10)
    first: Share = field(name="firstDegradedDomain", default=0.25)
    domains: Count = field(name="newDegradedDomainsPerHour", default=2)
    check: CheckLimit = field(name="perCheck", default=CheckLimit())
    check_overrides: Annotated[tuple[CheckOverride, ...], Meta(max_length=100)] = field(
        name="checkOverrides", default=()
    )


class GracePeriods(Struct, frozen=True, forbid_unknown_fields=True, rename={"shared": "sharedHardware"}):
    """How long a finding is active before a mark is set, by mark; `0s`: no grace period.

    sharedHardware: for findings that shared hardware can cause, so that the diagnosis comes first.
    """

    quarantine: GraceDuration = 5.0
    suspect: GraceDuration = 60.0
    shared: GraceDuration = 90.0

    def of(self, mark: Mark) -> float:
        """Return the grace period of a kind of mark without shared hardware; 0 for a kind without one."""
        name = mark.kind.grace_period
        return float(getattr(self, name)) if name else 0.0


for _kind in MARK_KINDS.values():
    if not hasattr(Budget, _kind.budget or "fleet") or not hasattr(
        GracePeriods, _kind.grace_period or "shared"
    ):
        raise AssertionError(f"the policy has no budget or grace period for {_kind}: add the field")


class SoakPeriod(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a check must pass before its mark is released: `initial`, then twice as long after each
    relapse, at most `max`. Faults older than `resetAfter` do not count.
    """

    first: Duration = field(name="initial", default=600.0)
    maximum: Duration = field(name="max", default=28_800.0)
    forget: Duration = field(name="resetAfter", default=86_400.0)


class MarkWrites(Struct, frozen=True, forbid_unknown_fields=True, rename={"device": "deviceTaint"}):
    """What a mark writes. deviceTaint: a taint on one GPU instead of its node, if the cluster supports it."""

    taint: bool = True
    cordon: bool = False
    condition: bool = True
    device: bool = True


class Hold(Struct, frozen=True, forbid_unknown_fields=True):
    """Do not touch: nodes, by name or labels or both; or checks, `check` or `checks`. reason: for people."""

    node: NodePattern | UnsetType = UNSET
    labels: Labels = {}
    check: CheckPattern | UnsetType = UNSET
    checks: CheckPatterns | UnsetType = UNSET
    reason: Text = ""


class Silence(Struct, frozen=True, forbid_unknown_fields=True):
    """No incidents and Events of some checks on some nodes; default: all checks, all nodes. Marks are set.

    until: end of the silence; default: never.
    """

    check: CheckPattern | UnsetType = UNSET
    checks: CheckPatterns | UnsetType = UNSET
    node: NodePattern = "*"
    until: Timestamp | UnsetType = UNSET
    reason: Text = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns of its checks."""
        return check_patterns(self) or ("*",)

    @property
    def end(self) -> float:
        """Seconds since the epoch; infinity without an end."""
        return self.until.timestamp() if self.until else inf


class StalePolicy(Struct, frozen=True, forbid_unknown_fields=True, rename={"freeze": "freezeAbove"}):
    """A node without a report for `after` is stale. While more than one node and more than the share
    `freezeAbove` of all are stale, and no failure domain explains it, no new marks are set. A few nodes that
    are not ready, or have been stale for 15 minutes, do not count.
    """

    after: Duration = 45.0
    freeze: StaleShare = 0.10


class InjectionPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """Faults that operators inject with `nodeguard inject`, to rehearse alerts and marks.

    allowed: accept them; otherwise they are refused and mark nothing. checks: of these checks only.
    """

    allowed: bool = False
    checks: Annotated[tuple[CheckPattern, ...], Meta(min_length=1, max_length=50)] = ("*",)


class TopologyLabels(Struct, frozen=True):
    """A topology by node labels: keys, coarsest first; a node's values are the path of its domain."""

    name: str
    labels: tuple[str, ...]


class NodeLocation(Struct, frozen=True):
    """The location of nodes by name or shell pattern. paths: domain path by topology, coarsest first, with
    `/`.
    """

    node: str
    paths: dict[str, str]


def check_patterns(row: ModeRule | CheckOverride | Hold | Silence) -> tuple[str, ...]:
    """Return the patterns of `check` or `checks`, none if both are missing."""
    return (row.check,) if row.check else row.checks or ()


class PolicyFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of the policy in a file and in use. pause: set no new marks."""

    mode: Mode = field(name="defaultMode", default=Mode.OBSERVE)
    modes: Annotated[tuple[ModeRule, ...], Meta(max_length=100)] = field(name="modeRules", default=())
    pools: Annotated[tuple[Pool, ...], Meta(max_length=200)] = ()
    budget: Budget = Budget()
    grace: GracePeriods = field(name="gracePeriod", default=GracePeriods())
    soak: SoakPeriod = SoakPeriod()
    marks: MarkWrites = field(name="markWith", default=MarkWrites())
    holds: Annotated[tuple[Hold, ...], Meta(max_length=500)] = ()
    silences: Annotated[tuple[Silence, ...], Meta(max_length=500)] = ()
    stale: StalePolicy = field(name="staleNodes", default=StalePolicy())
    # The file and the policy in use have these in other forms: tables are read, and the catalogue has the
    # fault classes.
    topologies: object = ()
    locations: object = field(name="nodeLocations", default=())
    diagnosis: object = ()
    injection: InjectionPolicy = InjectionPolicy()
    pause: bool = False


class Policy(PolicyFields, frozen=True):
    """The policy in use."""

    topologies: tuple[TopologyLabels, ...] = ()
    locations: tuple[NodeLocation, ...] = ()
    diagnosis: DiagnosisPolicy = DiagnosisPolicy()


def default_policy(fault_classes: tuple[FaultClass, ...]) -> Policy:
    """Return the policy without a policy file. fault_classes: of the catalogue."""
    return Policy(diagnosis=DiagnosisPolicy(classes=fault_classes))
