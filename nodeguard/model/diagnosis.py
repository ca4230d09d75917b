"""Constants of the diagnosis: how a failure domain becomes degraded, and how a check is suppressed."""

from __future__ import annotations

from math import ceil, log
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from nodeguard.model.amounts import CheckPatterns, Count, Duration, Share, Window, identifier
from nodeguard.model.finding import Action

# Topologies of versions. A degraded domain of theirs is never marked; the findings of its nodes are withheld.
VERSION_TOPOLOGIES = ("catalogue", "agent", "driver", "vbios", "firmware", "kernel")

# Topologies of locations.
LOCATION_TOPOLOGIES = ("fabric", "nvlink", "rack", "power", "zone")

# The check that a node without recent reports fails.
STALE_CHECK = "agent-silent"


# A part of the nodes of a domain, written as a number.
NodeShare = Annotated[float, Meta(gt=0.0, le=1.0)]

# Onsets of one node a day. One in 2,700 years is rarer than any fault: less would only round to zero.
DailyRate = Annotated[float, Meta(ge=1e-6, le=1_000.0)]


class VoteTopology(Struct, frozen=True, forbid_unknown_fields=True):
    """A topology in which a fault class votes."""

    topology: (
        Literal["fabric", "nvlink", "rack", "power", "zone"]
        | Literal["catalogue", "agent", "driver", "vbios", "firmware", "kernel"]
    )
    share: NodeShare = 0.08
    """Minimum share of a parent domain's nodes that vote."""


_Guide = Annotated[str, Meta(min_length=1, max_length=300)]


class Guidance(Struct, frozen=True, forbid_unknown_fields=True):
    """What people do about a degraded domain."""

    owner: Annotated[str, Meta(min_length=1, max_length=100)]
    """The team that acts, with an article: `the network team`."""
    first: _Guide
    """What the team looks at first."""
    nodes: _Guide
    """What to do with the nodes meanwhile."""
    end: _Guide
    """How the end of the fault is recognised."""


class FaultClass(Struct, frozen=True, forbid_unknown_fields=True):
    """Faults that shared hardware or software can cause."""

    name: Annotated[str, identifier("link-down", "site-fans")]
    """Unique name."""
    checks: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    """Patterns of check ids."""
    topologies: Annotated[tuple[VoteTopology, ...], Meta(min_length=1, max_length=11)]
    """Topologies in which a check votes, if they are among its own."""
    windows: Annotated[tuple[Window, ...], Meta(min_length=1, max_length=5)]
    """Times within which votes count together."""
    share: NodeShare
    """Minimum share of a domain's nodes that vote."""
    phrase: Annotated[str, Meta(min_length=1, max_length=100)]
    """What the voting nodes do, as in `14 of 16 nodes lost a link`."""
    daily_rate: DailyRate = 0.01
    """Onsets of one node a day, until the fleet's own rate is known."""
    weak: bool = False
    """Whether a small share of many nodes is diagnosed only after a delay."""
    lasting: bool = False
    """Whether the fault lasts until it is fixed, so the domain stays degraded while its nodes show it."""
    normal_operation: bool = False
    """Whether nodes without a fault show it, too: then `daily_rate` is also usual of checks that ask for a
    mark."""
    job_start_checks: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    """Patterns of checks of past events that the start of a job may cause, too: they then vote for it."""
    action: Action = Action.NONE
    """Action on the nodes of a degraded domain. Default: `none`, as their repair does not help."""
    guidance: Guidance | None = None
    """What people do, as `nodeguard explain CLASS` and the descriptions of domain and incident show it."""


_MIN, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0

# Topologies with marks of their Nodes. A version has none: findings of a bad version are withheld.
TopologyName = Literal["fabric", "nvlink", "rack", "power", "zone"]
Windows = Annotated[tuple[Duration, ...], Meta(min_length=1, max_length=5)]
Probability = Annotated[float, Meta(gt=0.0, lt=0.5)]


class WeakEvidence(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """If less than `share` of a leaf's nodes are affected, the diagnosis waits for `wait`, and needs the
    minimum of nodes affected within `recent`.
    """

    share: Share = 0.25
    wait: Duration = 600.0
    recent: Duration = 300.0


class RecoveryPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long hardly any node is affected before a domain is no longer degraded: `initial`, then twice as
    long after each relapse, at most `max`. Faults older than `resetAfter` do not count.
    """

    initial: Duration = 1_800.0
    max: Duration = 28_800.0
    reset_after: Duration = _DAY


class SuppressionPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A check is suppressed when it begins to fire on `minNodes` nodes that no domain explains, and on more
    than chance explains within one of the windows.

    usualDailyOnsets: onsets a day that are always usual. significance: probability of a wrong suppression.
    confirmedShare: share of the nodes on which another source must confirm the check for it to be real.
    """

    min_nodes: Count = 5
    usual_daily_onsets: Annotated[float, Meta(gt=0.0, le=100_000.0)] = 0.33
    significance: Probability = 1e-6
    windows: Windows = (10 * _MIN, _HOUR, 4 * _HOUR, 8 * _HOUR, _DAY)
    confirmed_share: Share = 0.2


class FaultClassChange(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A class of faults that shared hardware can cause. Defaults: the values of the catalogue.

    checks: that vote. windows: within which votes belong together. share: of a domain's nodes that must be
    affected. dailyRate: onsets of one node a day, while the fleet's own rate is not known well.
    """

    checks: CheckPatterns | UnsetType = UNSET
    windows: Windows | UnsetType = UNSET
    share: Share | UnsetType = UNSET
    daily_rate: DailyRate | UnsetType = UNSET


# Two affected nodes are enough if they are at least this share of a domain: assumed.
_LARGE_SHARE = 1 / 3


class DiagnosisSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When a failure domain explains the findings of many nodes, and when a check does.

    enforce: topologies with marks of degraded domains; the others are a dry run. minNodes: affected nodes, at
    least; in a domain of which two are a third, two. significance: probability that chance explains the
    findings, at most. rateMargin: factor on the fleet's own fault rate. gracePeriod: how long the evidence
    lasts before a domain is degraded.
    maxDailyOnsets: a node with more onsets a day does not vote.
    """

    enforce: Annotated[tuple[TopologyName, ...], Meta(max_length=5)] = ()
    min_nodes: Annotated[int, Meta(ge=2, le=1_000)] = 3
    significance: Probability = 1e-6
    rate_margin: Annotated[float, Meta(ge=1.0, le=1_000.0)] = 3.0
    grace_period: Duration = 15.0
    max_daily_onsets: Count = 3
    weak_evidence: WeakEvidence = WeakEvidence()
    recovery: RecoveryPolicy = RecoveryPolicy()
    suppression: SuppressionPolicy = SuppressionPolicy()
    fault_classes: dict[str, FaultClassChange] = {}

    def fewest_affected(self, size: int) -> int:
        """Return the minimum number of affected nodes of a domain of `size` nodes."""
        return min(self.min_nodes, max(2, ceil(_LARGE_SHARE * size)))

    @property
    def significance_exponent(self) -> float:
        """The maximum probability of chance, as its negative logarithm."""
        # One decimal of the exponent is a tenth of the probability: more precision has no effect.
        return round(-log(self.significance), 1)


class DiagnosisPolicy(DiagnosisSettings, frozen=True):
    """Settings with their fault classes: of the catalogue, with the changes. Without them no node votes."""

    classes: tuple[FaultClass, ...] = ()
