"""The votes for one fault class: their nodes, times and domains. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from math import inf

from nodeguard.fleet.diagnosis.results import Candidate, VoteTally
from nodeguard.fleet.diagnosis.significance import OnsetRate, fewest_significant, significance
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import (
    LOCATION_TOPOLOGIES,
    DiagnosisPolicy,
    FaultClass,
    VoteTopology,
)

_DAY = 86_400.0
_NONE: dict[str, float] = {}


class VoteContext:
    """What the votes of all fault classes and checks share. members: the nodes that may vote, with their
    domains. began: time of the first evaluation; infinity before. version_changes: when a node got another
    version that it has, by uid and domain. rates, ends: the usual rate of each fault class, and when domains
    were last cleared, also of earlier rules.
    """

    def __init__(self, rule: DiagnosisPolicy) -> None:
        self.rule = rule
        self.members = DomainMembers()
        self.began = inf
        self.version_changes: dict[str, dict[str, float]] = {}
        self.rates: defaultdict[str, OnsetRate] = defaultdict(OnsetRate)
        self.ends: defaultdict[str, dict[str, float]] = defaultdict(dict)


class FaultVotes:
    """The votes for one fault class: the latest of each node. of_jobs: the time up to which the start of a
    job explains the votes of a node, by uid: these count for no domain. ended: when domains were last
    cleared. new_voters: nodes with a vote, or with other domains, since the latest evaluation. context: of
    all votes.
    """

    def __init__(self, fault_class: FaultClass, context: VoteContext) -> None:
        self.vote_class = fault_class
        self.vote_rules: dict[str, VoteTopology] = {rule.topology: rule for rule in fault_class.topologies}
        self.location_topologies = self.vote_rules.keys() & set(LOCATION_TOPOLOGIES)
        self.longest_window = max(fault_class.windows)
        self.of_jobs: dict[str, float] = {}
        self.ended = context.ends[fault_class.name]
        self.new_voters: set[str] = set()
        self.context = context
        self._rule = context.rule
        self._members = context.members
        self._rate = context.rates[fault_class.name]
        self._latest: dict[str, float] = {}  # in the order of the votes
        self._by_check: dict[str, dict[str, float]] = {}  # the latest vote for each check, by uid
        self._topologies: dict[str, frozenset[str]] = {}
        self._onsets: dict[str, deque[float]] = {}
        self._recent: deque[tuple[float, str]] = deque()

    def vote(self, uid: str, check: str, topologies: Iterable[str], at: float) -> None:
        """Record the vote of a node for a check, with a fault that may be shared in some topologies. A vote
        from before the end of a diagnosis of one of its domains does not count.
        """
        self.new_voters.add(uid)
        if self.has_ended(uid, at):
            return
        self._onsets.setdefault(uid, deque(maxlen=_ONSETS)).append(at)
        self._recent.append((at, uid))
        own = self.vote_rules.keys() & frozenset(topologies)
        self._topologies[uid] = self._topologies.get(uid, frozenset()) | own
        by_check = self._by_check.setdefault(uid, {})
        by_check[check] = max(at, by_check.get(check, at))
        self._latest[uid] = max(at, self._latest.pop(uid, at))

    def has_ended(self, uid: str, at: float) -> bool:
        """Return whether a vote is from before the end of a diagnosis of one of the node's domains."""
        return any(at <= self.ended.get(path, -inf) for path in self._members.paths(uid))

    def update_domains(self, uid: str) -> bool:
        """Update the domains of a node. Returns whether it has a vote."""
        if uid in self._latest:
            self.new_voters.add(uid)
        return uid in self._latest

    def remove_node(self, uid: str) -> None:
        """Remove the votes and the onsets of a node."""
        self._remove_votes(uid)
        self._onsets.pop(uid, None)

    def withdraw(self, uid: str, check: str) -> bool:
        """Withdraw the vote of a node for a check: its latest for another one counts then. Returns whether it
        had any vote.
        """
        by_check = self._by_check.get(uid)
        if by_check is None:
            return False
        by_check.pop(check, None)
        at = max(by_check.values(), default=-inf)
        if not by_check or self.has_ended(uid, at):
            self._remove_votes(uid)
        else:
            del self._latest[uid]
            self._latest[uid] = at
        return True

    def _remove_votes(self, uid: str) -> None:
        for votes in (self._latest, self._by_check, self._topologies):
            votes.pop(uid, None)

    def end(self, path: str, at: float) -> None:
        """Withdraw the votes in a domain up to a time, at which its diagnosis ended."""
        self.ended[path] = max(at, self.ended.get(path, at))
        for uid in [uid for uid, vote in self.latest_in(path).items() if vote <= at]:
            self._remove_votes(uid)

    def forget(self, now: float) -> None:
        """Forget old votes; those since the start that nothing explained count towards the usual rate."""
        while self._recent and self._recent[0][0] < now - self.longest_window:
            at, uid = self._recent.popleft()
            if at >= self.context.began and not self._repeats(uid, at):
                self._rate.count(now)
        gone = now - max(self._rule.recovery.max, self.longest_window + _DAY)
        for path in [path for path, at in self.ended.items() if at < gone]:
            del self.ended[path]
        while self._latest:
            uid, at = next(iter(self._latest.items()))
            if at >= gone:
                break
            self.remove_node(uid)

    def set_explained(self, until: Mapping[str, float]) -> None:
        """Record up to which time the votes of some nodes have a cause: they do not count as chance."""
        self._recent = deque((at, uid) for at, uid in self._recent if at > until.get(uid, -inf))
        for uid in until.keys() & self._onsets.keys():
            onsets = (at for at in self._onsets[uid] if at > until[uid])
            self._onsets[uid] = deque(onsets, maxlen=_ONSETS)

    def explain_by_jobs(self, times: dict[str, float]) -> bool:
        """Set until when job starts explain the votes of nodes, by uid. Returns whether that changed."""
        before, self.of_jobs = self.of_jobs, times
        new = {uid: at for uid, at in times.items() if before.get(uid) != at}
        if new:
            self.set_explained(new)
        return before != times

    def voters(self, path: str, now: float, within: float) -> dict[str, float]:
        """Return the voters of a domain, with their latest vote, without nodes that vote all the time, or
        with a vote that the start of a job explains.
        """
        since, of_jobs = now - within, self.of_jobs
        return {
            uid: at
            for uid, at in self.latest_in(path).items()
            if since < at <= now and at > of_jobs.get(uid, since) and not self._repeats(uid, now)
        }

    def current_voters(self, now: float, within: float = inf) -> dict[str, float]:
        """Return all nodes with a vote within some seconds, at most the longest window, with their latest."""
        since = now - min(within, self.longest_window)
        return {uid: at for uid, at in self._latest.items() if at > since}

    def onsets(self, uid: str) -> Iterable[float]:
        """Return the onsets of a node that nothing explained, as far as is remembered."""
        return self._onsets.get(uid, ())

    def latest_in(self, path: str) -> dict[str, float]:
        """Return the latest vote of each node of a domain, as far as is remembered, by uid."""
        latest, topology = self._latest, self._members.topology_of(path)
        nodes = latest.keys() & self._members.nodes(path)
        return {uid: latest[uid] for uid in nodes if topology in self._topologies[uid]}

    def domains(self, uid: str) -> Iterator[str]:
        """Yield the domains in which a node's vote counts."""
        topologies = self._topologies.get(uid, ())
        return (path for path in self._members.paths(uid) if self._members.topology_of(path) in topologies)

    def lowest_domains(self, uid: str) -> Iterator[str]:
        """Yield the lowest domains in which a node's vote counts."""
        return (path for path in self.domains(uid) if not self._members.children(path))

    def is_weak(self, candidate: Candidate) -> bool:
        """Return whether so few nodes of a lowest domain vote that the diagnosis waits."""
        is_few = self.vote_class.weak and candidate.share < self._rule.weak_evidence.share
        return is_few and not self._members.children(candidate.domain)

    def chance(self, window: float, now: float) -> float:
        """Return the probability that a node votes within a window by chance, with the margin."""
        return min(0.999, self._rule.rate_margin * self.usual_rate(now) * window)

    def usual_rate(self, now: float) -> float:
        """Return the onsets of one node a second that are usual."""
        return self._rate.per_node(len(self._members), now, self.vote_class.daily_rate / _DAY)

    def concentrated(
        self, uids: Iterable[str], onsets: Mapping[str, float], since: float, rate: float, now: float
    ) -> Iterator[str]:
        """Yield the nodes with an onset for which they have not voted, in those lowest domains of some nodes
        that have more onsets than a rate explains, and than the rest of the fleet. onsets: the latest, by
        uid; those until `since` do not count; rate: of one node a second.
        """
        leaves = {
            path
            for path in chain.from_iterable(map(self._members.paths, uids))
            if self._members.topology_of(path) in self.location_topologies
            and not self._members.children(path)
        }
        usual = max(rate, self.usual_rate(now))
        # Number of onsets in the fleet by window: counted only for a leaf that has enough.
        counts: dict[float, int] = {}
        for leaf, window in product(leaves, self.vote_class.windows):
            size, after = self._members.size(leaf), max(since, now - window)
            nodes = {uid for uid in self._members.nodes(leaf) if onsets.get(uid, -inf) > after}
            if len(nodes) < self._rule.fewest_affected(size, self.vote_class.share):
                continue
            if window not in counts:
                counts[window] = sum(1 for at in onsets.values() if at > after)
            elsewhere = (counts[window] - len(nodes)) / max(1, len(self._members) - size)
            chance = min(0.999, self._rule.rate_margin * max(usual * window, elsewhere))
            if significance(len(nodes), size, chance) >= self._rule.significance_exponent:
                yield from (uid for uid in nodes if self._latest.get(uid) != onsets[uid])

    def tally(self, path: str, now: float) -> VoteTally:
        """Return the votes in a domain now, within the window in which it is nearest to degraded."""
        size, children = self._members.size(path), self._members.children(path)
        share = self.vote_rules[self._members.topology_of(path)].share if children else self.vote_class.share
        by_share = self._rule.fewest_affected(size, share)
        tallies = []
        for window in self.vote_class.windows:
            by_chance = fewest_significant(size, self.chance(window, now), self._rule.significance_exponent)
            voters = self.voters(path, now, window)
            evidence = self.vote_class.name, path, window, voters, size
            phrase = self.vote_class.phrase
            tallies.append(VoteTally(*evidence, description=phrase, by_share=by_share, by_chance=by_chance))
        return max(tallies, key=lambda tally: len(tally.voters) / max(1, tally.required))

    def _repeats(self, uid: str, now: float) -> bool:
        """Return whether a node voted again and again before anything that happens now."""
        onsets = self._onsets.get(uid, ())
        if len(onsets) < self._rule.max_daily_onsets:
            return False
        end = now - self.longest_window
        return sum(1 for at in onsets if end - _DAY <= at < end) >= self._rule.max_daily_onsets


# Seconds within which a bad version shows on a node: checks wait for up to ten minutes. Assumed.
AFTER_RECEIPT = 900.0

# A report may tell a fault some seconds before it tells the version that brought it: assumed.
BEFORE_RECEIPT = 60.0

# Maximum number of remembered onsets of a node.
_ONSETS = 32
