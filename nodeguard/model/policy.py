"""The policy: what may be marked, how much of it, and when it is given back."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.mark import Mark


class Mode(StrEnum):
    """`observe`: say what would be done; `enforce`: do it."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ModeRule(Struct, frozen=True):
    """A mode for some checks (patterns as of a shell) and marks; the last rule that fits counts."""

    checks: tuple[str, ...]
    mode: Mode
    marks: tuple[Mark, ...] = (Mark.QUARANTINE, Mark.SUSPECT)


class Pool(Struct, frozen=True):
    """Nodes that share a budget: those with all these labels, and the first pool that fits. share: of them
    that may be marked at a time; None for the policy's own.
    """

    name: str
    labels: dict[str, str]
    share: float | None = None


class CheckLimit(Struct, frozen=True):
    """How many nodes a check may take out: `new` within `within` seconds, `standing` at a time."""

    checks: tuple[str, ...] = ("*",)
    new: int = 5
    within: float = 600.0
    active: int = 15


class Budget(Struct, frozen=True):
    """Shares of nodes that may be marked at a time, from 0 to 1; each comes to one node at least.

    fleet: of all. reserve: of the fleet's budget, for what is fatal alone. pool: of a pool. domain: of each
    domain. suspect: of all, by `suspect` marks. degraded: of all, in domains that are marked as such, which
    nothing else is charged with; first: of all, in one such domain, while there is no other; domains: how
    many of them may be new in an hour. check: for each check; checks: for some, the first that fits.
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
    """Seconds for which a finding stands before it is marked, by mark. shared: where a part that nodes share
    may have caused it, so that this can be blamed first.
    """

    quarantine: float = 5.0
    suspect: float = 60.0
    shared: float = 90.0


class SoakPeriod(Struct, frozen=True):
    """Seconds for which a fault is proven to be over before its mark goes: `first`, then twice as long each
    time, at most `most`; what lies `forget` seconds back does not count.
    """

    first: float = 600.0
    maximum: float = 28_800.0
    forget: float = 86_400.0


class MarkWrites(Struct, frozen=True):
    """What a mark writes. device: a taint on the one GPU instead of its node, where a cluster can."""

    taint: bool = True
    cordon: bool = False
    condition: bool = True
    device: bool = True


class Hold(Struct, frozen=True):
    """Do not touch: nodes by name (a pattern) or by labels; or checks, none of whose marks are set any more,
    and whose standing ones are given back.
    """

    node: str = ""
    labels: dict[str, str] = {}
    checks: tuple[str, ...] = ()
    reason: str = ""


class Silence(Struct, frozen=True):
    """Tell nobody: no incidents and Events of some checks on some nodes (patterns), until seconds since the
    epoch; 0 for ever. Marks are set all the same.
    """

    checks: tuple[str, ...] = ("*",)
    node: str = "*"
    until: float = 0.0
    reason: str = ""


class StalePolicy(Struct, frozen=True):
    """A node that has said nothing for `after` seconds is stale; when more than a share of `freeze` of all
    are, with no domain to explain it, nothing new is marked.
    """

    after: float = 45.0
    freeze: float = 0.10


class TopologyLabels(Struct, frozen=True):
    """How nodes share something: label keys, coarsest first; a node's values are the path of its domain."""

    name: str
    labels: tuple[str, ...]


class NodeLocation(Struct, frozen=True):
    """Where nodes are that a name or a pattern (as of a shell) fits. paths: by view, coarsest first, with `/`
    between the steps.
    """

    node: str
    paths: dict[str, str]


class Policy(Struct, frozen=True):
    """All of it; each part has the design's defaults. pause: nothing new is marked."""

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
