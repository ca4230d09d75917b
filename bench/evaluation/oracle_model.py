"""What the oracle knows: delays, usual votes, votes, and the causes that may explain them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Literal

from msgspec import Struct

# Minimum width in seconds of the time in which a cause shows on its nodes: agents evaluate every 10 s.
_RESOLUTION = 10.0

# Parts of equal probability of a delay.
PARTS = 24


class DelayQuantiles(Struct, frozen=True):
    """The delay of something after its cause began. ends: in seconds, of parts of equal probability."""

    ends: tuple[float, ...]

    @classmethod
    def of(cls, delays: Iterable[float]) -> DelayQuantiles:
        """Return the distribution of some delays in seconds: drawn at random, or quantiles."""
        ordered = sorted(delays)
        quantiles = [_interpolated(ordered, part / PARTS) for part in range(PARTS + 1)]
        # The extremes of a sample are not those of its distribution.
        margin = (quantiles[-1] - quantiles[0]) / PARTS
        quantiles[0], quantiles[-1] = quantiles[0] - margin, quantiles[-1] + margin
        ends = quantiles[:1]
        for end in quantiles[1:]:
            ends.append(max(end, ends[-1] + _RESOLUTION / PARTS))
        return cls(tuple(ends))

    def densities(self) -> list[float]:
        """Return the density before the first part, in each part, and after the last."""
        return [0.0, *(1.0 / (PARTS * (end - begin)) for begin, end in pairwise(self.ends)), 0.0]

    def density(self, seconds: float) -> float:
        """Return the density at so many seconds."""
        part = bisect_right(self.ends, seconds)
        if part in (0, PARTS + 1):
            return 0.0
        return 1.0 / (PARTS * (self.ends[part] - self.ends[part - 1]))

    def probability(self, seconds: float) -> float:
        """Return the probability of at most so many seconds."""
        part = bisect_right(self.ends, seconds)
        if part == 0 or part > PARTS:
            return float(part > 0)
        begin, end = self.ends[part - 1], self.ends[part]
        return (part - 1 + (seconds - begin) / (end - begin)) / PARTS


def _interpolated(ordered: Sequence[float], share: float) -> float:
    index, part = divmod(share * (len(ordered) - 1), 1.0)
    begin = ordered[int(index)]
    return begin + part * (ordered[min(int(index) + 1, len(ordered) - 1)] - begin)


class NodeVote(Struct, frozen=True):
    """A check fires on a node from its onset until it clears, and votes once. Times in seconds.

    surge: votes of the node a second around the onset in addition to its usual rate, as at the start of a
    job; inf for a vote that is no evidence.
    """

    onset: float
    cleared: float = inf
    surge: float = 0.0


class UsualVotes(Struct, frozen=True):
    """The votes of a check without a cause. rate: of one node, in votes a second. clusters: nodes with a
    common factor on it, from a Gamma distribution with mean 1; shape: of that distribution.
    """

    rate: float
    clusters: tuple[frozenset[int], ...] = ()
    shape: float = 1.0


class Observed(Struct, frozen=True):
    """What is observed from a time until another, in seconds. votes: of each node, by check."""

    since: float
    until: float
    votes: Mapping[str, Mapping[int, Sequence[NodeVote]]]


class CandidateCause(Struct, frozen=True):
    """Nodes that may have a common cause. starts: when it started on each node, in seconds, if that is known,
    as of a version or a job; None for a cause that starts on all nodes at the same, unknown time.
    """

    name: str
    members: frozenset[int]
    parent: str = ""
    starts: Mapping[int, float] | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    """A kind of cause. group: causes of one group with the same nodes are one. prior: probability of the
    kind. onset, report: delay of the onset of a vote, and of its report. shares: of the nodes of a cause that
    show it, all equally likely. candidates: all equally likely. count: of candidates that fail together, from
    the same start, of one parent, of different ones, or of any; each has its own share.
    """

    name: str
    group: str
    check: str
    prior: float
    onset: DelayQuantiles
    report: DelayQuantiles
    shares: tuple[float, ...]
    candidates: tuple[CandidateCause, ...]
    count: int = 1
    parents: Literal["any", "one", "different"] = "any"
    unlabelled: frozenset[int] = frozenset()
    """Nodes that may be in any candidate, as their labels name none."""
    mislabelled: float = 0.0
    """Share of the other nodes that may be in any candidate, as their labels name a wrong one."""
    nodes: int = 1
    """Number of nodes of the fleet."""
