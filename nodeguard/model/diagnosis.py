"""Constants of the diagnosis: how a failure domain becomes degraded, and how a check is suppressed."""

from __future__ import annotations

from msgspec import Struct

# Topologies of versions. A degraded domain of theirs is never marked; the findings of its nodes are withheld.
VERSION_TOPOLOGIES = ("catalogue", "agent", "driver", "vbios", "firmware", "kernel")

# Topologies of locations.
LOCATION_TOPOLOGIES = ("fabric", "nvlink", "rack", "power", "zone")

# The check that a node without recent reports fails.
STALE_CHECK = "agent-silent"


class VoteTopology(Struct, frozen=True):
    """A topology in which a fault class votes, and when a parent domain is preferred to its children.

    share: minimum share of the parent's nodes that vote. child, votes: half of the children, or both of two,
    need at least this share and this number of voting nodes. max_child_share: maximum share of the parent's
    votes that one child may have.
    """

    topology: str
    share: float = 0.08
    child: float = 0.04
    votes: int = 1
    max_child_share: float = 0.6


class FaultClass(Struct, frozen=True):
    """Faults that shared hardware or software can cause.

    checks: patterns of check ids; a check votes in those of its topologies that are listed in topologies.
    windows: seconds within which votes count together. share: minimum share of a domain's nodes. rate: onsets
    of one node a day, until the fleet's own rate is known. weak: whether a small share of many nodes is only
    diagnosed after a delay. lasting: whether the fault lasts until it is fixed, so that the domain stays
    degraded as long as its nodes show it. phrase: what the voting nodes do, as in `14 of 16 nodes lost a
    link`.
    """

    name: str
    checks: tuple[str, ...]
    topologies: tuple[VoteTopology, ...]
    windows: tuple[float, ...]
    share: float
    phrase: str
    rate: float = 0.01
    weak: bool = False
    lasting: bool = False


_MIN, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
_FABRIC = VoteTopology("fabric")

FAULT_CLASSES = (
    FaultClass(
        "link-down",
        ("port-down", "port-not-managed"),
        (_FABRIC,),
        (2 * _MIN,),
        0.125,
        "lost a link",
        rate=0.02,
        weak=True,
        lasting=True,
    ),
    FaultClass(
        "link",
        ("*",),
        (_FABRIC,),
        (10 * _MIN, 30 * _MIN, 2 * _HOUR),
        0.15,
        "had trouble with a link",
        rate=0.05,
        weak=True,
    ),
    FaultClass(
        "silent",
        (STALE_CHECK,),
        (VoteTopology("power", 0.3, 0.15, 2, 1.0), VoteTopology("fabric", 0.08, 0.15, 2)),
        (2 * _MIN,),
        0.3,
        "fell silent",
        rate=0.02,
        lasting=True,
    ),
    FaultClass(
        "thermal",
        ("*",),
        (VoteTopology("rack", 0.1, 0.05),),
        (30 * _MIN, 2 * _HOUR),
        0.3,
        "grew too hot",
        rate=0.02,
        lasting=True,
    ),
    FaultClass(
        "power",
        ("*",),
        (VoteTopology("power", 0.3, 0.15, 2, 1.0),),
        (10 * _MIN,),
        0.3,
        "had too little power",
        lasting=True,
    ),
    FaultClass(
        "nvlink",
        ("*",),
        (VoteTopology("nvlink"),),
        (10 * _MIN,),
        0.25,
        "had trouble with an NVLink",
        rate=0.005,
        lasting=True,
    ),
    FaultClass(
        "rollout",
        ("*",),
        tuple(map(VoteTopology, VERSION_TOPOLOGIES)),
        (10 * _MIN, 2 * _HOUR, _DAY),
        0.25,
        "began to fail",
    ),
)


class DiagnosisPolicy(Struct, frozen=True):
    """Constants of the diagnosis. Times in seconds.

    Degraded domains. enforce: topologies whose degraded domains are marked; others are only reported.
    classes: the fault classes. nodes: minimum number of voting nodes. surprise: maximum probability of
    chance, as the exponent of Chernoff's bound; caution: factor on the fleet's own rate. settle: time for
    which a domain is a candidate before it is degraded. weak: share of nodes below which a weak class waits
    for `patience`, and needs `nodes` voters within `lately`. repeats: onsets of one node in a day above which
    it does not vote. clear, most: time without votes after which a domain is released; it doubles each time,
    up to `most`. forget: age above which an onset does not count.

    Suppressed checks. held: minimum number of unexplained nodes. often: minimum rate of onsets of a check a
    day. chance: probability of a wrong suppression at each evaluation. windows: in which the nodes are
    counted. second: share of the nodes that a second source confirms, above which the check is not
    suppressed.
    """

    enforce: tuple[str, ...] = ()
    classes: tuple[FaultClass, ...] = FAULT_CLASSES
    nodes: int = 3
    surprise: float = 13.8
    caution: float = 3.0
    settle: float = 15.0
    weak: float = 0.25
    patience: float = 600.0
    lately: float = 300.0
    repeats: int = 3
    clear: float = 1_800.0
    most: float = 28_800.0
    forget: float = _DAY
    held: int = 5
    often: float = 1.0
    chance: float = 1e-6
    windows: tuple[float, ...] = (10 * _MIN, 2 * _HOUR, _DAY)
    second: float = 0.2
