"""How a shared part, or a check, comes to be blamed: the constants of the rule."""

from __future__ import annotations

from msgspec import Struct

# Views of versions: a domain of theirs is never kept from work, what its nodes find is not acted upon.
VERSION_TOPOLOGIES = ("catalogue", "agent", "driver", "vbios", "firmware", "kernel")

# Views of places.
LOCATION_TOPOLOGIES = ("fabric", "nvlink", "rack", "power", "zone")

# The check that a node fails which is not heard any more.
STALE_CHECK = "agent-silent"


class VoteTopology(Struct, frozen=True):
    """A view in which a class of faults votes, and when a parent is blamed instead of what it consists of.

    share: of the parent's members that show it. child, votes: half of its children, or both of two, have at
    least such a share of members that do, and so many. most: share of the parent's voters that one child may
    have.
    """

    topology: str
    share: float = 0.08
    child: float = 0.04
    votes: int = 1
    max_child_share: float = 0.6


class FaultClass(Struct, frozen=True):
    """Faults that a shared part can cause.

    checks: patterns; one votes in those of its views that are named in where. windows: seconds within which
    votes belong together. share: of a domain's members that show it. rate: onsets of one node in a day, as
    long as little is known of the fleet's own. weak: whether few of many nodes are waited for. lasting:
    whether it goes on until it is mended, so that a domain is kept as long as it does. says: what nodes do
    that vote, as in `14 of 16 nodes …`.
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
        "link-down", ("port-down", "port-not-managed"), (_FABRIC,), (2 * _MIN,), 0.125, "lost a link",
        rate=0.02, weak=True, lasting=True,
    ),
    FaultClass(
        "link", ("*",), (_FABRIC,), (10 * _MIN, 30 * _MIN, 2 * _HOUR), 0.15, "had trouble with a link",
        rate=0.05, weak=True,
    ),
    FaultClass(
        "silent", (STALE_CHECK,), (VoteTopology("power", 0.3, 0.15, 2, 1.0), VoteTopology("fabric", 0.08, 0.15, 2)), (2 * _MIN,),
        0.3, "fell silent", rate=0.02, lasting=True,
    ),
    FaultClass(
        "thermal", ("*",), (VoteTopology("rack", 0.1, 0.05),), (30 * _MIN, 2 * _HOUR), 0.3, "grew too hot",
        rate=0.02, lasting=True,
    ),
    FaultClass(
        "power", ("*",), (VoteTopology("power", 0.3, 0.15, 2, 1.0),), (10 * _MIN,), 0.3, "had too little power",
        lasting=True,
    ),
    FaultClass(
        "nvlink", ("*",), (VoteTopology("nvlink"),), (10 * _MIN,), 0.25, "had trouble with an NVLink", rate=0.005,
        lasting=True,
    ),
    FaultClass(
        "rollout", ("*",), tuple(VoteTopology(view) for view in VERSION_TOPOLOGIES), (10 * _MIN, 2 * _HOUR, _DAY), 0.25,
        "began to fail",
    ),
)  # fmt: skip


class DiagnosisPolicy(Struct, frozen=True):
    """The rule. Times in seconds.

    enforce: views whose domains are marked; else it is only said. classes: see there. nodes: that vote, at
    least. surprise: how unlikely it is at least that they do so by chance, as the exponent of Chernoff's
    bound; caution: how often the fleet's own rate chance is thought to have. settle: for how long a domain is
    chosen before it is blamed. weak: share of members below which one of a weak class waits `patience`, and
    is blamed only if `nodes` of them showed it within `lately`. repeats: onsets of one node within a day
    beyond which it does not vote. clear, most: seconds without votes after which a domain is let go, twice as
    long each time, at most; forget: what lies so far back does not count.

    held: nodes that nothing explains, at least, for which a check is held; often: a check's onsets a day,
    below which the fleet's own rate is not thought to be; chance: of holding one wrongly at each look.
    windows: within which they are counted. second: share of them that a second source bears out, from which
    on it is called real.
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
