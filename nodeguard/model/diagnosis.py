"""Constants of the diagnosis: how a failure domain becomes degraded, and how a check is suppressed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from nodeguard.model.amounts import Window
from nodeguard.model.finding import Action

# Topologies of versions. A degraded domain of theirs is never marked; the findings of its nodes are withheld.
VERSION_TOPOLOGIES = ("catalogue", "agent", "driver", "vbios", "firmware", "kernel")

# Topologies of locations.
LOCATION_TOPOLOGIES = ("fabric", "nvlink", "rack", "power", "zone")

# The check that a node without recent reports fails.
STALE_CHECK = "agent-silent"


# A part of the nodes of a domain, written as a number.
NodeShare = Annotated[float, Meta(gt=0.0, le=1.0)]


class VoteTopology(Struct, frozen=True, forbid_unknown_fields=True):
    """A topology in which a fault class votes, and when a parent domain is preferred to its children.

    share: minimum share of the parent's nodes that vote. child, votes: half of the children, or both of two,
    need at least this share and this number of voting nodes; in files `child_share` and `child_votes`.
    max_child_share: maximum share of the parent's votes that one child may have.
    """

    topology: (
        Literal["fabric", "nvlink", "rack", "power", "zone"]
        | Literal["catalogue", "agent", "driver", "vbios", "firmware", "kernel"]
    )
    share: NodeShare = 0.08
    child: NodeShare = field(name="child_share", default=0.04)
    votes: Annotated[int, Meta(ge=1, le=1_000)] = field(name="child_votes", default=1)
    max_child_share: NodeShare = 0.6


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
    """Faults that shared hardware or software can cause.

    checks: patterns of check ids; a check votes in those of its topologies that are listed in `topologies`.
    windows: seconds within which votes count together. share: minimum share of a domain's nodes. daily_rate:
    onsets of one node a day, until the fleet's own rate is known. weak: whether a small share of many nodes
    is only diagnosed after a delay. lasting: whether the fault lasts until it is fixed, so that the domain
    stays degraded as long as its nodes show it. phrase: what the voting nodes do, as in `14 of 16 nodes lost
    a link`. job_start_checks: checks of events that the start of a job may cause, too. action: on the nodes
    of a degraded domain; `none` where their repair does not help. guidance: None if a class of a site has
    none.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\Z", max_length=63)]
    checks: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    topologies: Annotated[tuple[VoteTopology, ...], Meta(min_length=1, max_length=11)]
    windows: Annotated[tuple[Window, ...], Meta(min_length=1, max_length=5)]
    share: NodeShare
    phrase: Annotated[str, Meta(min_length=1, max_length=100)]
    daily_rate: Annotated[float, Meta(gt=0.0, le=1_000.0)] = 0.01
    weak: bool = False
    lasting: bool = False
    job_start_checks: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    action: Action = Action.NONE
    guidance: Guidance | None = None


_MIN, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


class DiagnosisPolicy(Struct, frozen=True):
    """Constants of the diagnosis. Times in seconds.

    Degraded domains. enforce: topologies with marks of degraded domains; others are only reported.
    classes: the fault classes, of the catalogue; without them no node votes. min_nodes: minimum number of
    voting nodes. significance_exponent: maximum probability of chance, as its negative
    logarithm. rate_margin: factor on the fleet's own rate. grace_period: time for which a domain is a
    candidate before it is degraded. weak_share: share of nodes below which a weak class waits for
    `weak_wait`, and needs `min_nodes` voters within `weak_window`. max_daily_onsets: onsets of one node
    in a day above which it does not vote. recovery_initial, recovery_max: time without votes after which
    a domain is cleared; it doubles each time, up to the maximum. recovery_reset_after: age above which an
    earlier diagnosis does not count.

    Suppressed checks. suppression_min_nodes: minimum number of unexplained nodes. usual_daily_onsets: minimum
    rate of unconfirmed onsets of a check a day. suppression_significance: probability of a wrong suppression
    at each evaluation. suppression_windows: in which the nodes are counted. confirmed_share: share of the
    nodes that another source confirms, above which the suppressed check counts as confirmed.
    """

    enforce: tuple[str, ...] = ()
    classes: tuple[FaultClass, ...] = ()
    min_nodes: int = 3
    significance_exponent: float = 13.8
    rate_margin: float = 3.0
    grace_period: float = 15.0
    weak_share: float = 0.25
    weak_wait: float = 600.0
    weak_window: float = 300.0
    max_daily_onsets: int = 3
    recovery_initial: float = 1_800.0
    recovery_max: float = 28_800.0
    recovery_reset_after: float = _DAY
    suppression_min_nodes: int = 5
    usual_daily_onsets: float = 0.33
    suppression_significance: float = 1e-6
    suppression_windows: tuple[float, ...] = (10 * _MIN, _HOUR, 4 * _HOUR, 8 * _HOUR, _DAY)
    confirmed_share: float = 0.2
