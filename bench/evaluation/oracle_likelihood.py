"""The likelihood of the causes of some votes, as a ratio to that of no cause. Pure.

Of a node with usual rate λ, for a cause that starts at τ with share q, delay density f and distribution F,
the ratio is 1 - q F(t - τ) + q f(t - τ) / λ with a vote at t, and 1 - q F(T - τ) without one until T. The
ratio of a cluster has the mean of the factor on its rates, with the probabilities that its votes leave; that
of a cause is the mean over its share and its start. Votes are counted by the parts of the delay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from math import comb, inf, log
from operator import mul, sub

from bench.evaluation.log_space import log_integral_mean, log_mean_exp
from bench.evaluation.oracle_model import PARTS, CandidateCause, Explanation
from bench.evaluation.oracle_votes import CheckVotes, counts_between, possible_starts

# Parts of a delay at which a start is tried before a vote, and a distance in seconds that only decides on the
# side of a jump of the likelihood.
_POINTS, _SIDE = (1, 4, 8, 12, 16, 20, 23), 1e-4

# Maximum number of votes with starts before them, and starts between those that all votes of a time allow.
_MOST_VOTES, _INNER_STARTS = 6, 12

# Starts of causes that do not show yet.
_HIDDEN_STARTS = 12

# Only the likeliest candidates are combined to sets.
_COMBINED = 4

# Above this number of votes at once, labels do not explain them.
_MOST_STRAYS = 64

# A vote that a cause makes so much likelier is one of the cause, whatever the factor on the usual rate.
_STRONG = 5.0

# Maximum probability that a vote shows: a node without one never excludes a cause.
_CERTAIN = 0.999


class Weight:
    """The weight of a set of candidates: the logarithm of prior times ratio. estimate: a rough one.

    candidates: fewer than fail together for all sets that include them and candidates without votes.
    """

    def __init__(
        self,
        evidence: Evidence,
        candidates: tuple[CandidateCause, ...],
        whole: Sequence[CandidateCause],
        prior: float,
    ) -> None:
        """whole: candidates, with some of those without votes."""
        self.candidates = candidates
        self._evidence, self._prior = evidence, prior
        self._parts = [evidence.part(candidate) for candidate in whole]
        self.estimate = prior + evidence.estimate(self._parts)

    def exact(self) -> float:
        """Return the weight."""
        return self._prior + self._evidence.log_ratio(self._parts)


class Evidence:
    """The evidence for the causes of one kind."""

    def __init__(self, votes: CheckVotes, explanation: Explanation) -> None:
        self.votes, self.explanation = votes, explanation
        self.since, self.until = votes.since, votes.until
        densities = [density / votes.rate for density in explanation.onset.densities()[1:-1]]
        self.tables = [
            [
                log(1.0 - share * (part + 0.5) / PARTS + share * density)
                for part, density in enumerate(densities)
            ]
            for share in explanation.shares
        ]
        share = sum(explanation.shares) / len(explanation.shares)
        strong = [part for part, density in enumerate(densities) if share * density > _STRONG]
        ends = explanation.onset.ends
        self._densities = densities
        self._stray_tables: dict[float, Sequence[float]] = {}
        self._strong = (ends[strong[0]], ends[strong[-1] + 1]) if strong else (0.0, 0.0)
        self._everyone = votes.of(frozenset(votes.voters))
        self._unlabelled = votes.of(frozenset(votes.voters.keys() & explanation.unlabelled))
        self._parts: dict[str, _Part] = {}

    def weights(self) -> Iterator[Weight]:
        """Yield the weights of the sets of candidates with votes."""
        explanation, voters = self.explanation, self.votes.voters
        sets = count_sets(explanation)
        if not sets or not explanation.prior:
            return
        prior = log(explanation.prior / sets)
        shown = [item for item in explanation.candidates if not item.members.isdisjoint(voters)]
        if explanation.count == 1:
            yield from (Weight(self, (item,), (item,), prior) for item in shown)
            return
        names = {item.name for item in shown}
        silent = [item for item in explanation.candidates if item.name not in names]
        shown.sort(key=lambda item: -self.estimate([self.part(item)]))
        for size in range(explanation.count, 0, -1):
            for items in combinations(shown[:_COMBINED], size):
                # Of the silent candidates that complete a set, the first are as likely as the others.
                rest = [item for item in silent if _fits(explanation, (*items, item))]
                number = comb(len(rest), explanation.count - size)
                whole = (*items, *rest[: explanation.count - size])
                if number and _fits(explanation, whole):
                    yield Weight(self, items, whole, prior + log(number))

    def hidden(self) -> float:
        """Return the weight of all candidates without votes."""
        explanation, voters = self.explanation, self.votes.voters
        silent = [item for item in explanation.candidates if item.members.isdisjoint(voters)]
        if not silent or not explanation.prior:
            return -inf
        nodes = sum(len(item.members) for item in silent) / len(silent) * explanation.count
        width = (self.until - self.since) / _HIDDEN_STARTS
        starts = [self.since + (index + 0.5) * width for index in range(_HIDDEN_STARTS)]
        # Nearly all of it is from starts so late that the cause does not show yet.
        late = (self.until - end for end in explanation.report.ends[::4])
        starts += (start for start in late if self.since < start < self.until)
        ratios = [
            log_mean_exp([nodes * log(1.0 - share * self.shown(start)) for share in explanation.shares])
            for start in starts
        ]
        prior = explanation.prior * (len(silent) / len(explanation.candidates)) ** explanation.count
        return log(prior) + log_integral_mean(starts, ratios, self.since, self.until)

    def shown(self, start: float) -> float:
        """Return the probability that a vote for a cause that started at a time is reported by now."""
        return min(_CERTAIN, self.explanation.report.probability(self.until - start))

    def log_ratio(self, parts: Sequence[_Part]) -> float:
        """Return the ratio of candidates that fail together, over all possible starts."""
        if parts[0].candidate.starts is not None:
            return sum(part.log_ratio_of_starts() for part in parts)
        starts = sorted({start for part in parts for start in part.starts()})
        ratios = [
            sum(part.log_ratio(start) for part in parts) + self.log_shared(parts, start) for start in starts
        ]
        return log_integral_mean(starts, ratios, self.since, self.until)

    def estimate(self, parts: Sequence[_Part]) -> float:
        """Return the ratio of candidates that fail together roughly: at the start that allows the most votes
        of one of them, times the time that this start is good for.
        """
        if parts[0].candidate.starts is not None:
            return self.log_ratio(parts)
        ends = self.explanation.onset.ends
        first, last = possible_starts(sorted(at for part in parts for at in part.votes.times), ends)
        seconds = max(last - first, (ends[-1] - ends[0]) / PARTS)
        start = (first + last) / 2.0
        at = sum(part.log_ratio(start) for part in parts) + self.log_shared(parts, start)
        return at + log(min(1.0, seconds / (self.until - self.since)))

    def log_shared(self, parts: Sequence[_Part], start: float) -> float:
        """Return the ratio for a start that candidates which fail together do not have one by one: of the
        factors of clusters, and of the votes of nodes without a label, or with a wrong one. These may belong
        to the candidates, or be usual ones.
        """
        explanation = self.explanation
        places = sorted(place for part in parts for place in part.votes.places)
        own = self._log_factors(places, start)
        if not (explanation.unlabelled or explanation.mislabelled):
            return own
        times = [start + end for end in explanation.onset.ends]
        others, hits = counts_between(self._everyone.onsets, times)
        if not hits:
            return own
        share = sum(len(part.candidate.members) for part in parts) / explanation.nodes
        choices = [own]
        missing, missing_hits = counts_between(self._unlabelled.onsets, times)
        gained = sum(map(mul, missing, self._stray_table(share)))
        if missing_hits:
            choices.append(gained + self._log_factors(sorted((*places, *self._unlabelled.places)), start))
        if explanation.mislabelled and hits <= _MOST_STRAYS:
            for counts in (*(part.counts(times) for part in parts), missing):
                others = list(map(sub, others, counts)) if counts else others
            gained += sum(map(mul, others, self._stray_table(share * explanation.mislabelled)))
            choices.append(gained + self._log_factors(self._everyone.places, start))
        return max(choices)

    def _log_factors(self, places: Sequence[tuple[float, int]], start: float) -> float:
        """Return the ratio of the factors of clusters if a cause explains some votes. places: onset and
        cluster of each, sorted.
        """
        first, last = start + self._strong[0], start + self._strong[1]
        if last <= first:
            return 0.0
        begin, end = bisect_left(places, (first, -1)), bisect_left(places, (last, -1))
        powers = Counter(cluster for _, cluster in places[begin:end] if cluster >= 0)
        return sum(self.votes.log_inverse_factor(cluster, power) for cluster, power in powers.items())

    def _stray_table(self, share: float) -> Sequence[float]:
        """Return the ratio of a vote in each part of the delay, of a node with this probability to belong."""
        table = self._stray_tables.get(share)
        if table is None:
            shown = share * sum(self.explanation.shares) / len(self.explanation.shares)
            table = self._stray_tables[share] = [log(1.0 + shown * density) for density in self._densities]
        return table

    def part(self, candidate: CandidateCause) -> _Part:
        """Return the votes of a candidate for this kind."""
        part = self._parts.get(candidate.name)
        if part is None:
            part = self._parts[candidate.name] = _Part(self, candidate)
        return part


class _Part:
    """The votes of the nodes of one candidate, for causes of one kind."""

    def __init__(self, evidence: Evidence, candidate: CandidateCause) -> None:
        self.candidate = candidate
        self._evidence = evidence
        self.votes = evidence.votes.of(candidate.members)
        self._ratios: dict[float, float] = {}

    @cached_property
    def possible_starts(self) -> tuple[float, float]:
        """Return the earliest and the latest start that allow the most votes."""
        return possible_starts(self.votes.times, self._evidence.explanation.onset.ends)

    def starts(self) -> Iterator[float]:
        """Yield the starts at which to evaluate the ratio: more where it changes fast, before votes."""
        evidence, times = self._evidence, self.votes.times
        since, until, ends = evidence.since, evidence.until, evidence.explanation.onset.ends
        yield from (since, until)
        inner = (ends[0] - _SIDE, ends[0] + _SIDE, *(ends[point] for point in _POINTS))
        distances = (*inner, ends[-1] - _SIDE, ends[-1] + _SIDE)
        points = [
            at - distance for at in times[:: -(-len(times) // _MOST_VOTES) or 1] for distance in distances
        ]
        if times:
            first, last = self.possible_starts
            step = (last - first) / (_INNER_STARTS - 1)
            points += (first + index * step for index in range(_INNER_STARTS))
            points += (first - _SIDE, first + _SIDE, last - _SIDE, last + _SIDE)
        yield from (point for point in points if since < point < until)

    def counts(self, times: Sequence[float]) -> Sequence[int]:
        """Return the numbers of votes between successive times; empty for none."""
        return counts_between(self.votes.onsets, times)[0]

    def log_ratio(self, start: float) -> float:
        """Return the ratio for a start, over all possible shares."""
        if start not in self._ratios:
            self._ratios[start] = self._log_ratio(start)
        return self._ratios[start]

    def _log_ratio(self, start: float) -> float:
        evidence, votes = self._evidence, self.votes
        ends, shares = evidence.explanation.onset.ends, evidence.explanation.shares
        shown = evidence.shown(start)
        times = [start + end for end in ends]
        counts, hits = counts_between(votes.onsets, times)
        # The check fired already when the cause started: the node cannot show it.
        firing = bisect_left(votes.firing, start) - bisect_left(votes.cleared, start)
        surges = [(onset - start, surge) for onset, surge in votes.surges if times[0] <= onset < times[-1]]
        silent = max(0, len(self.candidate.members) - hits - firing - len(surges))
        ratios = []
        for number, share in enumerate(shares):
            ratio = silent * log(1.0 - share * shown)
            if hits:
                ratio += sum(map(mul, counts, evidence.tables[number]))
            for seconds, surge in surges:
                ratio += self._log_surge(seconds, surge, share)
            ratios.append(ratio)
        return log_mean_exp(ratios)

    def _log_surge(self, seconds: float, surge: float, share: float) -> float:
        """Return the ratio of a vote in a surge, so many seconds after the start of the cause."""
        onset, rate = self._evidence.explanation.onset, self._evidence.votes.rate
        gained = onset.density(seconds) / (rate + surge)
        return log(1.0 - share * (min(_CERTAIN, onset.probability(seconds)) - gained))

    def log_ratio_of_starts(self) -> float:
        """Return the ratio for a cause with known starts, over all possible shares."""
        evidence, voters = self._evidence, self._evidence.votes.voters
        onset, starts = evidence.explanation.onset, self.candidate.starts or {}
        terms = []
        clusters: dict[int, int] = defaultdict(int)
        for node in self.candidate.members:
            start = starts[node]
            votes = voters.get(node, ())
            if any(vote.onset < start <= vote.cleared for vote in votes):
                continue
            gained, shown = 0.0, evidence.shown(start)
            for vote in votes:
                if (density := onset.density(vote.onset - start)) and vote.surge < inf:
                    gained += density / (evidence.votes.rate + vote.surge)
                    shown = min(_CERTAIN, onset.probability(vote.onset - start))
                    cluster = evidence.votes.cluster(node)
                    if cluster >= 0 and not vote.surge and gained > _STRONG:
                        clusters[cluster] += 1
            terms.append(gained - shown)
        factors = sum(
            evidence.votes.log_inverse_factor(cluster, power) for cluster, power in clusters.items()
        )
        ratios = [sum(log(1.0 + share * term) for term in terms) for share in evidence.explanation.shares]
        return factors + log_mean_exp(ratios)


def count_sets(explanation: Explanation) -> int:
    """Return the number of sets of candidates that may fail together."""
    by_parent: dict[str, int] = defaultdict(int)
    for candidate in explanation.candidates:
        by_parent[candidate.parent] += 1
    if explanation.parents == "any":
        return comb(len(explanation.candidates), explanation.count)
    if explanation.parents == "one":
        return sum(comb(size, explanation.count) for size in by_parent.values())
    sets = [1, *[0] * explanation.count]
    for size in by_parent.values():
        for count in range(explanation.count, 0, -1):
            sets[count] += sets[count - 1] * size
    return sets[explanation.count]


def _fits(explanation: Explanation, candidates: Sequence[CandidateCause]) -> bool:
    """Return whether these candidates may fail together, by their parents."""
    parents = len({candidate.parent for candidate in candidates})
    return explanation.parents == "any" or parents == (1 if explanation.parents == "one" else len(candidates))
