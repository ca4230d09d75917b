"""The policy: which checks may mark nodes, how many, and when marks are released."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass
from nodeguard.model.mark import FINDING_MARKS, MARK_KINDS, Mark


class Mode(StrEnum):
    """`observe`: report what would be done; `enforce`: do it."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ModeRule(Struct, frozen=True):
    """A mode for some checks (shell patterns) and marks; the last rule that matches wins."""

    checks: tuple[str, ...]
    mode: Mode
    marks: tuple[Mark, ...] = FINDING_MARKS


class Pool(Struct, frozen=True):
    """Nodes that share a budget: those with all of these labels; the first pool that matches wins.

    share: maximum share of its nodes that are marked at a time; None for Budget.pool.
    """

    name: str
    labels: dict[str, str]
    share: float | None = None


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


class GracePeriods(Struct, frozen=True):
    """Grace periods: seconds for which a finding is active before it is marked, by kind of mark.

    shared: if shared hardware may be the cause, so that the diagnosis of the domain comes first.
    """

    quarantine: float = 5.0
    suspect: float = 60.0
    shared: float = 90.0

    def of(self, mark: Mark) -> float:
        """Return the grace period of a kind of mark without shared hardware; 0 for a kind without one."""
        name = mark.kind.grace_period
        return float(getattr(self, name)) if name else 0.0


for _kind in MARK_KINDS.values():
    if not hasattr(Budget, _kind.budget or "fleet") or not hasattr(
        GracePeriods, _kind.grace_period or "shared"
    ):
        raise AssertionError(f"the policy has no budget or grace period for {_kind}: add the field")


class SoakPeriod(Struct, frozen=True):
    """Soak periods: seconds for which a check must pass before its mark is released.

    `first`, then doubled with each recurrence up to `maximum`; recurrences older than `forget` do not count.
    """

    first: float = 600.0
    maximum: float = 28_800.0
    forget: float = 86_400.0


class MarkWrites(Struct, frozen=True):
    """What a mark writes. device: taint one GPU instead of its node, where the cluster supports it."""

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


class StalePolicy(Struct, frozen=True):
    """When a node is stale: after `after` seconds without a message.

    If more than the share `freeze` of all nodes, and more than one, is stale and no degraded domain explains
    it, new marks stop. A few nodes that are not ready, or stale for 15 min, do not count.
    """

    after: float = 45.0
    freeze: float = 0.10


class InjectionPolicy(Struct, frozen=True):
    """Which faults operators may inject with `nodeguard inject`: if `allowed`, those of these checks."""

    allowed: bool = False
    checks: tuple[str, ...] = ("*",)


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
