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
    """What people do about a degraded domain, or a suppressed check."""

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
    """What the diagnosis asks for if only a few nodes of a leaf are affected, which is often a gang that
    failed to start.
    """

    share: Share = 0.25
    """Part of a leaf's nodes. Below it, the evidence is weak."""
    wait: Duration = 600.0
    """How long the diagnosis waits on weak evidence."""


class RecoveryPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long hardly any node is affected before a domain is no longer degraded."""

    initial: Duration = 1_800.0
    """Time after the first fault. It doubles after each relapse."""
    max: Duration = 28_800.0
    """Longest time. At least `initial`."""
    reset_after: Duration = _DAY
    """Age at which an earlier fault no longer counts as a relapse."""


# Part of the nodes on which a check has to fire that is enough soon after they received what evaluates it.
_AFTER_RECEIPT = 0.6


class SuppressionPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When a check is suppressed, so that it sets no marks: it begins to fire on many nodes that no domain
    explains, and on more than chance explains.
    """

    min_nodes: Count = 5
    """Nodes on which it begins to fire, at least. 60% of them if each has just received another catalogue or
    agent."""
    usual_daily_onsets: Annotated[float, Meta(gt=0.0, le=100_000.0)] = 0.33
    """Onsets a day, in the whole fleet, that are always usual."""
    significance: Probability = 1e-6
    """Probability of a wrong suppression, at most."""
    windows: Windows = (10 * _MIN, _HOUR, 4 * _HOUR, 8 * _HOUR, _DAY)
    """Times within which the onsets are counted."""
    confirmed_share: Share = 0.2
    """Part of these nodes on which another source must confirm the check for the fault to be real."""

    @property
    def min_nodes_after_receipt(self) -> int:
        """The minimum number of nodes that have just received what evaluates the check."""
        return max(2, ceil(_AFTER_RECEIPT * self.min_nodes))


class FaultClassChange(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Changes of a class of faults that shared hardware can cause, by its name. Defaults: the values of the
    catalogue.
    """

    checks: CheckPatterns | UnsetType = UNSET
    """Names or patterns of the checks that vote."""
    windows: Windows | UnsetType = UNSET
    """Times within which votes count together."""
    share: Share | UnsetType = UNSET
    """Part of a domain's nodes that must be affected. Raise it if domains are diagnosed too early."""
    daily_rate: DailyRate | UnsetType = UNSET
    """Onsets of one node a day, while the fleet's own rate is not known well."""


# Two affected nodes are enough if they are at least this share of a domain: assumed.
_LARGE_SHARE = 1 / 3


class DiagnosisSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When a failure domain explains the findings of many nodes, and when a check does."""

    enforce: Annotated[tuple[TopologyName, ...], Meta(max_length=5)] = ()
    """Topologies with marks of degraded domains. The others are a dry run."""
    min_nodes: Annotated[int, Meta(ge=2, le=1_000)] = 3
    """Affected nodes of a domain, at least. Two are enough where they are a third of it."""
    significance: Probability = 1e-6
    """Probability that chance explains the findings, at most."""
    rate_margin: Annotated[float, Meta(ge=1.0, le=1_000.0)] = 3.0
    """Factor on the fleet's own fault rate, which is never known well."""
    grace_period: Duration = 15.0
    """How long the evidence lasts before a domain is degraded. While a fault spreads, an early explanation is
    often wrong."""
    max_daily_onsets: Count = 3
    """Onsets of a node a day. A node with more does not vote: its fault is its own."""
    weak_evidence: WeakEvidence = WeakEvidence()
    """What is asked for if only a few nodes of a leaf are affected."""
    recovery: RecoveryPolicy = RecoveryPolicy()
    """When a domain is no longer degraded."""
    suppression: SuppressionPolicy = SuppressionPolicy()
    """When a check is suppressed."""
    fault_classes: dict[str, FaultClassChange] = {}
    """Changes of fault classes by name, such as `link`. `nodeguard explain class link` shows one."""

    def fewest_affected(self, size: int, share: float = 0.0) -> int:
        """Return the minimum number of affected nodes of a domain of `size` nodes. share: also of them."""
        return max(min(self.min_nodes, max(2, ceil(_LARGE_SHARE * size))), ceil(share * size))

    @property
    def significance_exponent(self) -> float:
        """The maximum probability of chance, as its negative logarithm."""
        # One decimal of the exponent is a tenth of the probability: more precision has no effect.
        return round(-log(self.significance), 1)


class DiagnosisPolicy(DiagnosisSettings, frozen=True):
    """Settings with their fault classes: of the catalogue, with the changes. Without them no node votes."""

    classes: tuple[FaultClass, ...] = ()
