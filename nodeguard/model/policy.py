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
from nodeguard.model.drain import DrainPolicy, DrainRule
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
    """The mode of some checks, for some marks. The last rule that matches applies."""

    mode: Mode
    """`enforce` sets the marks; `observe` only reports what would be done."""
    check: CheckPattern | UnsetType = UNSET
    """The check that the rule is for, as a name or a pattern. Write `check` or `checks`, not both."""
    checks: CheckPatterns | UnsetType = UNSET
    """The same for several checks: names or patterns."""
    marks: Marks = ("quarantine", "suspect")
    """The marks that the rule is for. Name one to enforce only `quarantine`, or only `suspect`."""


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that share a budget. A node is in the first pool that matches."""

    name: Name
    """Name of the pool in reasons, output and metrics."""
    labels: Labels = {}
    """Labels that a Node of the pool has, all of them, with their values as text. A pool without labels
    matches every node: put it last."""
    share: Share | UnsetType = UNSET
    """Largest part of the pool's nodes that may be marked at a time, at least one node. Default:
    `budget.pool`."""


class CheckLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes each check may mark. The limit stops a check that is wrong before it uses a whole
    budget.
    """

    new: Count = 5
    """New marks of the check within `within`, in nodes. Raise it where many nodes fail together."""
    within: Duration = 600.0
    """Time in which `new` counts."""
    active: Count = 15
    """Marked nodes of the check at a time. Raise it for a check that you trust, with `checkOverrides`."""


class CheckOverride(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of some checks. The first match applies."""

    check: CheckPattern | UnsetType = UNSET
    """The check that the limit is for, as a name or a pattern. Write `check` or `checks`, not both."""
    checks: CheckPatterns | UnsetType = UNSET
    """The same for several checks: names or patterns."""
    new: Count | UnsetType = UNSET
    """New marks of each check within `within`, in nodes. Default: that of `perCheck`."""
    within: Duration | UnsetType = UNSET
    """Time in which `new` counts. Default: that of `perCheck`."""
    active: Count | UnsetType = UNSET
    """Marked nodes of each check at a time. Default: that of `perCheck`."""

    def limit(self, default: CheckLimit) -> CheckLimit:
        """Return the limit of these checks. default: of each check."""
        return CheckLimit(
            self.new or default.new, self.within or default.within, self.active or default.active
        )


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes may be marked at a time. The tightest budget applies. Each share is rounded down, and at
    least one node.
    """

    fleet: Share = 0.05
    """Part of all nodes that may be marked. Lower it where spare capacity is scarce."""
    reserve: ReservedShare = field(name="fatalReserve", default=0.2)
    """Part of the fleet budget that only `quarantine` may use, rounded up: suspect nodes never use up the
    budget of fatal ones."""
    pool: Share = 0.10
    """Part of the nodes of each pool that may be marked. A pool may have a `share` of its own."""
    domain: Share = 0.25
    """Part of the nodes of each failure domain that may be marked one by one. Fatal faults that two sources
    confirm may use half of the domain."""
    suspect: Share = 0.05
    """Part of all nodes that may have the mark `suspect`."""
    degraded: Share = field(name="degradedDomains", default=0.10)
    """Part of all nodes that may be in marked degraded domains. No other mark uses this budget."""
    first: Share = field(name="firstDegradedDomain", default=0.25)
    """The same while only one domain is degraded. A rack of a small fleet is more than `degradedDomains`
    allows."""
    domains: Count = field(name="newDegradedDomainsPerHour", default=2)
    """Domains that may be marked as degraded within an hour."""
    check: CheckLimit = field(name="perCheck", default=CheckLimit())
    """Limits of each check, in nodes."""
    check_overrides: Annotated[tuple[CheckOverride, ...], Meta(max_length=100)] = field(
        name="checkOverrides", default=()
    )
    """Other limits for some checks."""


class GracePeriods(Struct, frozen=True, forbid_unknown_fields=True, rename={"shared": "sharedHardware"}):
    """How long a finding is active before a mark is set. `0s` is no grace period."""

    quarantine: GraceDuration = 5.0
    """Of the mark `quarantine`. Raise it if short faults that repair themselves are marked."""
    suspect: GraceDuration = 60.0
    """Of the mark `suspect`."""
    shared: GraceDuration = 90.0
    """Of both marks, for findings that shared hardware can cause: the diagnosis comes first, and marks the
    domain in place of its nodes."""

    def of(self, mark: Mark) -> float:
        """Return the grace period of a kind of mark without shared hardware; 0 for a kind without one."""
        name = mark.kind.grace_period
        return float(getattr(self, name)) if name else 0.0

    @property
    def longest(self) -> float:
        """Return the longest grace period of any mark."""
        return max(self.shared, *map(self.of, Mark))


for _kind in MARK_KINDS.values():
    if not hasattr(Budget, _kind.budget or "fleet") or not hasattr(
        GracePeriods, _kind.grace_period or "shared"
    ):
        raise AssertionError(f"the policy has no budget or grace period for {_kind}: add the field")


class SoakPeriod(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a check must pass before its mark is released."""

    first: Duration = field(name="initial", default=600.0)
    """Soak period after the first fault. It doubles after each relapse."""
    maximum: Duration = field(name="max", default=28_800.0)
    """Longest soak period. At least `initial`."""
    forget: Duration = field(name="resetAfter", default=86_400.0)
    """Age at which an earlier fault no longer counts as a relapse."""


class MarkWrites(Struct, frozen=True, forbid_unknown_fields=True, rename={"device": "deviceTaint"}):
    """What a mark writes to its Node."""

    taint: bool = True
    """Whether it writes the taint that keeps pods off. Without it, and without `cordon`, a mark keeps no work
    away."""
    cordon: bool = False
    """Whether a `quarantine` also cordons the Node, once when the mark begins. For schedulers that do not
    read taints."""
    condition: bool = True
    """Whether it writes conditions of the Node: `NodeguardHealthy`, which programs that repair nodes can
    read, and those of a drain of all its GPUs."""
    device: bool = True
    """Whether a fault of one GPU is a taint on this GPU in place of its node, if the cluster supports it: the
    other GPUs stay in service."""


class Hold(Struct, frozen=True, forbid_unknown_fields=True):
    """What nodeguard does not touch: nodes, by name or labels or both; or checks."""

    node: NodePattern | UnsetType = UNSET
    """Name of the node, or a pattern. Its marks are neither set nor released."""
    labels: Labels = {}
    """Labels that a Node has, all of them, with their values as text."""
    check: CheckPattern | UnsetType = UNSET
    """The check that is on hold, as a name or a pattern: its marks are released, and it sets no new ones.
    Write `check` or `checks`, not both."""
    checks: CheckPatterns | UnsetType = UNSET
    """The same for several checks: names or patterns."""
    reason: Text = ""
    """Why, for people: `nodeguard describe` and incidents show it."""


class Silence(Struct, frozen=True, forbid_unknown_fields=True):
    """Checks and nodes without incidents and Events. Marks are set all the same."""

    check: CheckPattern | UnsetType = UNSET
    """The check that is silenced, as a name or a pattern. Default: all checks. Write `check` or `checks`, not
    both."""
    checks: CheckPatterns | UnsetType = UNSET
    """The same for several checks: names or patterns."""
    node: NodePattern = "*"
    """Name of the node, or a pattern. Default: all nodes."""
    until: Timestamp | UnsetType = UNSET
    """End of the silence. Default: it has no end. A fault that lasts longer gets its incident then."""
    reason: Text = ""
    """Why, for people."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns of its checks."""
        return check_patterns(self) or ("*",)

    @property
    def end(self) -> float:
        """Seconds since the epoch; infinity without an end."""
        return self.until.timestamp() if self.until else inf


class StalePolicy(Struct, frozen=True, forbid_unknown_fields=True, rename={"freeze": "freezeAbove"}):
    """When a node without reports is stale, and when so many are stale that nodeguard itself is the likely
    cause. A few nodes that are not ready, or have been stale for 15 minutes, do not count.
    """

    after: Duration = 45.0
    """Time without a report after which a node is stale. Raise it for agents that report over an unreliable
    network."""
    freeze: StaleShare = 0.10
    """Part of all nodes. While more are stale, and more than one, and no failure domain explains it, no new
    marks are set."""


class InjectionPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """Faults that root injects on a node with `nodeguard inject`, to rehearse alerts and marks."""

    allowed: bool = False
    """Whether they are accepted. Otherwise they are refused, and mark nothing."""
    checks: Annotated[tuple[CheckPattern, ...], Meta(min_length=1, max_length=50)] = ("*",)
    """Names or patterns of the checks that may be injected."""


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


def check_patterns(row: ModeRule | CheckOverride | Hold | Silence | DrainRule) -> tuple[str, ...]:
    """Return the patterns of `check` or `checks`, none if both are missing."""
    return (row.check,) if row.check else row.checks or ()


class PolicyFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of the policy in a file and in use."""

    mode: Mode = field(name="defaultMode", default=Mode.OBSERVE)
    """Mode of all checks without a matching rule in `modeRules`. `observe` is a dry run; enforce checks one
    by one first."""
    modes: Annotated[tuple[ModeRule, ...], Meta(max_length=100)] = field(name="modeRules", default=())
    """The mode of some checks. The last rule that matches applies."""
    pools: Annotated[tuple[Pool, ...], Meta(max_length=200)] = ()
    """Nodes that share a budget of their own, such as those of one team."""
    budget: Budget = Budget()
    """How many nodes may be marked at a time."""
    grace: GracePeriods = field(name="gracePeriod", default=GracePeriods())
    """How long a finding is active before a mark is set."""
    soak: SoakPeriod = SoakPeriod()
    """How long a check must pass before its mark is released."""
    marks: MarkWrites = field(name="markWith", default=MarkWrites())
    """What a mark writes to its Node."""
    holds: Annotated[tuple[Hold, ...], Meta(max_length=500)] = ()
    """Nodes and checks that nodeguard does not touch."""
    silences: Annotated[tuple[Silence, ...], Meta(max_length=500)] = ()
    """Checks and nodes without incidents and Events."""
    stale: StalePolicy = field(name="staleNodes", default=StalePolicy())
    """When a node is stale, and when no new marks are set because too many are."""
    # The file and the policy in use have these in other forms: tables are read, and the catalogue has the
    # fault classes.
    topologies: object = ()
    locations: object = field(name="nodeLocations", default=())
    diagnosis: object = ()
    injection: InjectionPolicy = InjectionPolicy()
    """Whether operators may inject faults."""
    drain: DrainPolicy = DrainPolicy()
    """Whether the pods that use faulty hardware are evicted."""
    pause: bool = False
    """Whether new marks are paused. Marks are still released."""


class Policy(PolicyFields, frozen=True):
    """The policy in use."""

    topologies: tuple[TopologyLabels, ...] = ()
    locations: tuple[NodeLocation, ...] = ()
    diagnosis: DiagnosisPolicy = DiagnosisPolicy()


def default_policy(fault_classes: tuple[FaultClass, ...]) -> Policy:
    """Return the policy without a policy file. fault_classes: of the catalogue."""
    return Policy(diagnosis=DiagnosisPolicy(classes=fault_classes))
