"""The domains that explain the votes for one fault class best. Pure.

Within a topology, the explanations of a domain compete: one cause that the whole domain shares, the
explanations of its children, and independent faults. Topologies compete for the votes that several of them
explain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from math import ceil, inf
from typing import NamedTuple

from msgspec.structs import replace

from bench.evaluation.competing.likelihoods import another, clump, prior, shared_cause
from nodeguard.fleet.diagnosis.results import Candidate as DomainCandidate
from nodeguard.fleet.diagnosis.results import most_children
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers, is_within
from nodeguard.model.diagnosis import DiagnosisPolicy

# Seconds from an onset until its report.
_REPORTED_AFTER = 30.0

# Seconds within which a sudden fault shows on all nodes, beside the windows of the classes.
SUDDEN = (15.0, 60.0)

# Above this share of the fleet, a domain distinguishes no nodes.
MAX_FLEET_SHARE = 0.8


# A parent is affected if so many of its nodes outside of the affected children vote: fewer are single faults
# beside those of a child. A second and each further affected child counts as one of them.
_MIN_OTHERS = 5


def path_below(domain: str, parent: str) -> str:
    """Return the child of a parent domain that a domain of it is, or is in."""
    return domain[: len(parent) + 1] + domain[len(parent) + 1 :].partition("/")[0]


def shown_part(began: float, window: float, now: float) -> float:
    """Return the part of the nodes with a fault that have reported it. began: of the first; window: seconds
    within which it shows on all of them.
    """
    return min(1.0, max(0.0, now - began) / (window + _REPORTED_AFTER))


def densest(times: Sequence[tuple[str, float]], window: float) -> dict[str, float]:
    """Return the most votes within a window, the latest of several. times: of votes, in order."""
    first, (start, end) = 0, (0, 0)
    for last in range(len(times)):
        while times[last][1] - times[first][1] > window:
            first += 1
        if last + 1 - first >= end - start:
            start, end = first, last + 1
    return dict(times[start:end])


def times_of(voters: Mapping[str, float]) -> tuple[float, float]:
    """Return the first and the last vote."""
    return min(voters.values()), max(voters.values())


# Nodes outside of a faulty domain with the same fault at the same time, as a part of those inside: their
# labels may be wrong.
MISLABELLED = 0.25


class Candidate(DomainCandidate, frozen=True):
    """A domain that may be degraded.

    value: of this cause, as the logarithm of the odds against faults at the usual rate; second: that of the
    best other explanation.
    """

    value: float = 0.0
    second: float = 0.0

    @property
    def margin(self) -> float:
        """Return the logarithm of the odds against the second explanation."""
        return self.value - self.second

    def with_second(self, second: float) -> Candidate:
        """Return this candidate with a second explanation, if that is better than its own."""
        return replace(self, second=max(self.second, second))


class _Cause(NamedTuple):
    """One cause of a domain: its value, the window, and the voters."""

    value: float
    window: float
    voters: Mapping[str, float]


def _value(cause: _Cause) -> float:
    return cause.value


class _Best(NamedTuple):
    """The best explanation of the votes in a domain: its value, and that without a cause of the domain
    itself. chosen: the domains with a cause.
    """

    value: float
    without: float
    chosen: tuple[str, ...]


_NO_CAUSE = _Cause(-inf, 0.0, {})


class ClassExplanations:
    """The explanations of some votes. excluded: nodes with votes that have another cause already.

    wider: domains that too small a share of their nodes speaks for until now, by path.
    """

    def __init__(
        self,
        votes: FaultVotes,
        members: DomainMembers,
        voters: Mapping[str, float],
        rule: DiagnosisPolicy,
        excluded: Set[str],
        now: float,
    ) -> None:
        self._votes = votes
        self._members = members
        self._usual = votes.usual_rate(now)
        self._rule = rule
        self._excluded = set(excluded)
        self._now = now
        self._left = dict(voters)
        self._found: list[str] = []
        self.wider: dict[str, Candidate] = {}

    def possible(self) -> tuple[Candidate, ...]:
        """Return the likeliest domains that too few nodes speak for until now, without nodes in common."""
        chosen: list[Candidate] = []
        for item in sorted(self.wider.values(), key=_value_of, reverse=True):
            if all(item.voters.keys().isdisjoint(other.voters) for other in chosen):
                chosen.append(item)
        return tuple(chosen)

    def candidates(self) -> Iterator[Candidate]:
        """Yield the domains that explain votes, the surest first, with the second explanation."""
        while len(self._left) >= self._rule.min_nodes:
            found = self._best_of_all()
            if found is None:
                return
            yield found
            self._found.append(found.domain)
            taken = self._members.nodes(found.domain)
            self._left = {uid: at for uid, at in self._left.items() if uid not in taken}
            self._excluded |= taken

    def _best_of_all(self) -> Candidate | None:
        """Return the candidate with the highest value over independent faults, of any topology."""
        self._by_path: dict[str, dict[str, float]] = defaultdict(dict)
        for uid in sorted(self._left, key=self._left.__getitem__):
            for path in self._members.paths(uid):
                if self._members.topology_of(path) in self._votes.vote_rules:
                    self._by_path[path][uid] = self._left[uid]
        self._causes: dict[str, _Cause] = {}
        self._bests: dict[str, _Best] = {}
        found: list[Candidate] = []
        for topology in self._votes.vote_rules:
            roots = self._members.children(topology) & self._by_path.keys()
            for root in sorted(roots):
                found += [self._candidate(domain) for domain in self._best(root).chosen]
        first = max(found, key=self._gain, default=None)
        if first is None:
            return None
        by_topology: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self._related(first, found):
            by_topology[self._members.topology_of(candidate.domain)].append(candidate)
        totals = {topology: self._total(candidates) for topology, candidates in by_topology.items()}
        topology = max(totals, key=totals.__getitem__)
        chosen = by_topology.pop(topology)
        best = max(chosen, key=self._gain)
        nodes = {frozenset(self._members.nodes(item.domain)) for item in chosen}
        others = [
            totals[other]
            for other, candidates in by_topology.items()
            if {frozenset(self._members.nodes(item.domain)) for item in candidates} != nodes
        ]
        others += [
            self._total([item, *(other for other in chosen if item.voters.keys().isdisjoint(other.voters))])
            for item in self.wider.values()
            if self._members.topology_of(item.domain) != topology and _share_most(item, best)
        ]
        return best.with_second(best.value - totals[topology] + max(others, default=-inf))

    def _related(self, first: Candidate, found: Collection[Candidate]) -> list[Candidate]:
        """Return the candidates that have voters in common with one, directly or by others."""
        related, voters = [first], set(first.voters)
        while new := [item for item in found if item not in related and not voters.isdisjoint(item.voters)]:
            related += new
            voters.update(*(item.voters for item in new))
        return related

    def _total(self, candidates: Sequence[Candidate]) -> float:
        """Return the value of several candidates of one topology together."""
        value = sum(candidate.value for candidate in candidates)
        return value + self._together([candidate.window for candidate in candidates])

    def _gain(self, candidate: Candidate) -> float:
        """Return the value of a candidate over independent faults."""
        return candidate.value - self._independent(candidate.domain)

    def _candidate(self, domain: str) -> Candidate:
        cause = self._causes[domain]
        own = self._bests[domain]
        # The best explanation without this cause: of the domain itself, or of one that it is a part of.
        best, without, above = own.value, own.without, self._members.parent(domain)
        while above:
            wider = self._bests[above]
            # A parent of which only this part is left is no other explanation.
            whole = self._causes[above].value if self._size(above) > self._size(domain) else -inf
            without = max(wider.without - best + without, whole, self._independent(above))
            best, above = wider.value, self._members.parent(above)
        return Candidate(
            self._votes.vote_class.name,
            domain,
            cause.window,
            cause.voters,
            self._size(domain),
            value=own.value,
            second=own.value - (best - without),
        )

    def _best(self, path: str) -> _Best:
        """Return the best explanation of the votes in a domain, with its parts."""
        parts = [self._best(child) for child in sorted(self._members.children(path) & self._by_path.keys())]
        chosen = tuple(domain for part in parts for domain in part.chosen)
        together = self._together([self._causes[part.chosen[0]].window for part in parts if part.chosen])
        without = max(self._independent(path), sum(part.value for part in parts) + together)
        cause = self._cause(path, chosen)
        self._causes[path] = cause
        if cause.value > without:
            found = _Best(cause.value, without, (path,))
        elif parts and without > self._independent(path):
            found = _Best(without, without, chosen)
        else:
            found = _Best(without, without, ())
        self._bests[path] = found
        return found

    def _together(self, windows: Sequence[float]) -> float:
        """Return the value that domains gain since they fail together. windows: of each, in seconds."""
        return sum(another(self._rule, window) for window in windows[1:])

    def _may_be_whole(self, path: str, affected: Collection[str]) -> bool:
        """Return whether a fault may be one of a whole domain: it is in most of its children, or on enough
        nodes outside of those that are affected.
        """
        children = self._members.children(path)
        affected = [*affected, *(domain for domain in self._found if is_within(domain, path))]
        if not children or not affected:
            return True
        parts = {path_below(domain, path) for domain in affected}
        if len(parts) >= most_children(len(children)):
            return True
        inside = set[str]().union(*(self._by_path.get(domain, ()) for domain in affected))
        others = len(self._by_path[path].keys() - inside)
        return others + max(0, len(parts) - 1) >= _MIN_OTHERS

    def _independent(self, path: str) -> float:
        """Return the value of independent faults in a domain."""
        voters = len(self._by_path[path])
        return clump(voters, self._usual * self._votes.longest_window * self._size(path))

    def _cause(self, path: str, affected: Collection[str]) -> _Cause:
        """Return the best cause of a whole domain, with enough votes. affected: parts of it with a cause."""
        size = self._size(path)
        if size > MAX_FLEET_SHARE * len(self._members):
            return _NO_CAUSE
        rule = self._votes.vote_rules[self._members.topology_of(path)]
        share = rule.share if self._members.children(path) else self._votes.vote_class.share
        least = max(self._rule.min_nodes, ceil(share * size))
        times = list(self._by_path[path].items())
        if len(times) < self._rule.min_nodes:
            return _NO_CAUSE
        windows = {*SUDDEN, *self._votes.vote_class.windows}
        causes = [self._within(times, size, window) for window in sorted(windows)]
        best = max(causes, key=_value)
        enough = [cause for cause in causes if len(cause.voters) >= least]
        if enough and self._may_be_whole(path, affected):
            return max(enough, key=_value)
        if best.value > self._independent(path):
            name = self._votes.vote_class.name
            self.wider[path] = Candidate(name, path, best.window, best.voters, size, value=best.value)
        return _NO_CAUSE

    def _within(self, times: list[tuple[str, float]], size: int, window: float) -> _Cause:
        """Return the cause of most votes within a window. times: of votes, in order."""
        voters = densest(times, window)
        count = len(voters)
        if count < self._rule.min_nodes:
            return _NO_CAUSE
        began, last = times_of(voters)
        room = max(window - (last - began), window / (count + 1))
        shown = shown_part(began, window, self._now)
        value = shared_cause(count, size, self._usual * window, shown, prior(self._rule, room))
        return _Cause(value, window, voters)

    def _size(self, path: str) -> int:
        nodes = self._members.nodes(path)
        taken = len(nodes & self._excluded) if self._excluded else 0
        return len(nodes) - taken


def _value_of(candidate: Candidate) -> float:
    return candidate.value


def _share_most(item: Candidate, other: Candidate) -> bool:
    """Return whether a candidate has at least half of the voters of another."""
    return len(item.voters.keys() & other.voters.keys()) * 2 >= len(other.voters)
