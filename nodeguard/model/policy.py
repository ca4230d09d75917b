"""The policy: which checks may mark nodes, how many, and when marks are released."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeguard.model.amounts import END, Duration, GraceDuration, Share, StaleShare
from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass
from nodeguard.model.mark import FINDING_MARKS, MARK_KINDS, Mark

Name = Annotated[
    str, Meta(pattern=rf"^[a-z0-9]+(-[a-z0-9]+)*{END}", max_length=63, examples=["training", "pool-1"])
]
Labels = Annotated[dict[str, str], Meta(max_length=20)]
CheckPattern = Annotated[
    str, Meta(pattern=rf"^[a-z0-9*?!\[\]-]+{END}", max_length=100, examples=["gpu-*", "gpu-lost"])
]


class Mode(StrEnum):
    """`observe`: report what would be done; `enforce`: do it."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ModeRule(Struct, frozen=True):
    """A mode for some checks (shell patterns) and marks; the last rule that matches wins."""

    checks: tuple[str, ...]
    mode: Mode
    marks: tuple[Mark, ...] = FINDING_MARKS


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that share a budget: those with all these labels. A node is in the first pool that matches.

    share: of the pool's nodes that may be marked at a time; default: `budget.pool`.
    """

    name: Name
    labels: Labels = {}
    share: Share | UnsetType = UNSET


class CheckLimit(Struct, frozen=True):
    """How many nodes a check may mark: `new` within `within` seconds, `active` at a time."""

    checks: tuple[str, ...] = ("*",)
    new: int = 5
    within: float = 600.0
    active: int = 15


class Budget(Struct, frozen=True):
    """Maximum shares of nodes that are marked at a time, 0 to 1; each allows at least one node.

    fleet: of all nodes. reserve: of the fleet's budget, reserved for `fatal`. pool: of a pool. domain: of
    each failure domain. suspect: of all nodes, with `suspect` marks. degraded: of all nodes, in degraded
    domains, which are charged to no other budget; first: of all nodes, in the first degraded domain; domains:
    newly degraded domains in an hour. check: for each check; check_overrides: for some, the first that
    matches wins.
    """

    fleet: float = 0.05
    reserve: float = 0.2
    pool: float = 0.10
    domain: float = 0.25
    suspect: float = 0.05
    check: CheckLimit = CheckLimit()
    check_overrides: tuple[CheckLimit, ...] = ()
    degraded: float = 0.10
    first: float = 0.25
    domains: int = 2


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


class Hold(Struct, frozen=True):
    """An operator's "do not touch": nodes by name pattern or labels, or checks.

    Marks of these checks are not set, and active ones are released.
    """

    node: str = ""
    labels: dict[str, str] = {}
    checks: tuple[str, ...] = ()
    reason: str = ""


class Silence(Struct, frozen=True):
    """No incidents and Events of some checks on some nodes (patterns). Marks are still set.

    until: seconds since the epoch; 0 without end.
    """

    checks: tuple[str, ...] = ("*",)
    node: str = "*"
    until: float = 0.0
    reason: str = ""


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


class Policy(Struct, frozen=True):
    """The whole policy, with defaults. pause: no new marks."""

    mode: Mode = Mode.OBSERVE
    modes: tuple[ModeRule, ...] = ()
    pools: tuple[Pool, ...] = ()
    budget: Budget = Budget()
    grace: GracePeriods = GracePeriods()
    soak: SoakPeriod = SoakPeriod()
    marks: MarkWrites = MarkWrites()
    holds: tuple[Hold, ...] = ()
    silences: tuple[Silence, ...] = ()
    stale: StalePolicy = StalePolicy()
    topologies: tuple[TopologyLabels, ...] = ()
    locations: tuple[NodeLocation, ...] = ()
    diagnosis: DiagnosisPolicy = DiagnosisPolicy()
    pause: bool = False
    injection: InjectionPolicy = InjectionPolicy()


def default_policy(fault_classes: tuple[FaultClass, ...]) -> Policy:
    """Return the policy without a policy file. fault_classes: of the catalogue."""
    return Policy(diagnosis=DiagnosisPolicy(classes=fault_classes))
