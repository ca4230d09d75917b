"""The votes for one check as the oracle counts them: sorted by time, for any nodes. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf, lgamma, log
from operator import sub

from bench.evaluation.oracle_model import NodeVote, Observed, UsualVotes


class CheckVotes:
    """The votes for one check, sorted by time."""

    def __init__(self, observed: Observed, check: str, usual: UsualVotes) -> None:
        self.since, self.until, self.rate = observed.since, observed.until, usual.rate
        self.voters: Mapping[int, Sequence[NodeVote]] = observed.votes.get(check, {})
        self._usual = usual
        self._clusters = {
            node: index for index, nodes in enumerate(usual.clusters) for node in nodes & self.voters.keys()
        }
        self._members: dict[frozenset[int], MemberVotes] = {}
        self._factors: dict[int, tuple[float, float]] = {}

    def of(self, members: frozenset[int]) -> MemberVotes:
        """Return the votes of some nodes."""
        votes = self._members.get(members)
        if votes is None:
            votes = self._members[members] = MemberVotes(self, frozenset(self.voters.keys() & members))
        return votes

    def cluster(self, node: int) -> int:
        """Return the number of the cluster of a node with votes; -1 for none."""
        return self._clusters.get(node, -1)

    def log_inverse_factor(self, cluster: int, power: int) -> float:
        """Return the logarithm of the mean of the factor of a cluster to a negative power."""
        if cluster not in self._factors:
            nodes = self._usual.clusters[cluster]
            # In a surge, a vote says nothing of the rate.
            voters = nodes & self.voters.keys()
            count = sum(not vote.surge for node in voters for vote in self.voters[node])
            exposure = (self.until - self.since) * self.rate * len(nodes)
            self._factors[cluster] = self._usual.shape + count, self._usual.shape + exposure
        shape, scale = self._factors[cluster]
        return power * log(scale) + lgamma(shape - power) - lgamma(shape)


class MemberVotes:
    """The votes of some nodes. onsets: sorted times of those outside of a surge; places: with clusters.
    firing, cleared: sorted times of all votes, and of their ends. surges: onset and surge of the others.
    """

    def __init__(self, votes: CheckVotes, nodes: frozenset[int]) -> None:
        every = [(vote, votes.cluster(node)) for node in nodes for vote in votes.voters[node]]
        self.count = len(nodes)
        self.firing = sorted(vote.onset for vote, _ in every)
        self.cleared = sorted(vote.cleared for vote, _ in every)
        self.surges = [(vote.onset, vote.surge) for vote, _ in every if 0.0 < vote.surge < inf]
        self.places = sorted((vote.onset, cluster) for vote, cluster in every if not vote.surge)
        self.onsets = [onset for onset, _ in self.places]
        self.times = sorted([*self.onsets, *(onset for onset, _ in self.surges)])


def possible_starts(times: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """Return the earliest and the latest start that allow most of some sorted votes. ends: of the delay."""
    width = ends[-1] - ends[0]
    most, best, begin = 0, (0.0, 0.0), 0
    for end, at in enumerate(times):
        while times[begin] < at - width:
            begin += 1
        if end - begin + 1 >= most:
            most, best = end - begin + 1, (at - ends[-1], times[begin] - ends[0])
    return best


def counts_between(times: Sequence[float], ends: Sequence[float]) -> tuple[list[int], int]:
    """Return how many sorted times are between two successive ends, and their sum."""
    first, last = bisect_left(times, ends[0]), bisect_left(times, ends[-1])
    if first == last:
        return [], 0
    places = [bisect_left(times, end, first, last) for end in ends]
    return list(map(sub, places[1:], places)), last - first
