"""The votes of one class of faults: who showed it, when, and in which domain. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set

from nodeguard.fleet.diagnosis.results import VoteTally
from nodeguard.fleet.diagnosis.significance import OnsetRate, fewest_significant, significance
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass, VoteTopology

_DAY = 86_400.0
_NONE: dict[str, float] = {}


class FaultVotes:
    """One class's votes. A node has one, its latest."""

    def __init__(self, kind: FaultClass, rule: DiagnosisPolicy, members: DomainMembers) -> None:
        self.vote_class = kind
        self.vote_rules = {one.topology: one for one in kind.topologies}
        self.longest_window = max(kind.windows)
        self._rule = rule
        self._members = members
        self._latest: dict[str, float] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._views: dict[str, frozenset[str]] = {}
        self._in: dict[str, dict[str, float]] = {}  # latest by node, by domain
        self._onsets: dict[str, deque[float]] = {}
        self._recent: deque[tuple[float, str]] = deque()
        self._rate = OnsetRate()

    def vote(self, uid: str, views: Iterable[str], at: float) -> None:
        """A node shows it, which may be told of in these views."""
        self._onsets.setdefault(uid, deque(maxlen=_ONSETS)).append(at)
        self._recent.append((at, uid))
        self._views[uid] = self._views.get(uid, frozenset()) | self.vote_rules.keys() & frozenset(views)
        self._put(uid, max(at, self._latest.get(uid, at)))

    def update_domains(self, uid: str) -> bool:
        """A node is in other domains now, or in none. Returns whether it has a vote."""
        at = self._latest.get(uid)
        if at is None:
            return False
        views = self._views[uid]
        self.withdraw(uid)
        self._views[uid] = views
        self._put(uid, at)
        return True

    def remove_node(self, uid: str) -> None:
        """A node that is no more."""
        self.withdraw(uid)
        self._onsets.pop(uid, None)

    def withdraw(self, uid: str) -> None:
        """A node's vote does not count any more."""
        self._latest.pop(uid, None)
        self._views.pop(uid, None)
        for path in self._paths.pop(uid, ()):
            votes = self._in[path]
            del votes[uid]
            if not votes:
                del self._in[path]

    def forget(self, began: float, now: float) -> None:
        """Let go of what is too old to matter; learn from what was chance since anybody listened."""
        while self._recent and self._recent[0][0] < now - self.longest_window:
            at, uid = self._recent.popleft()
            if at >= began and not self._repeats(uid, at):
                self._rate.count(now)
        gone = now - max(self._rule.most, self.longest_window + _DAY)
        while self._latest:
            uid, at = next(iter(self._latest.items()))
            if at >= gone:
                break
            self.withdraw(uid)
            self._onsets.pop(uid, None)

    def set_explained(self, uids: Set[str]) -> None:
        """What these nodes show has a cause: it is not chance, and nobody's habit."""
        self._recent = deque(one for one in self._recent if one[1] not in uids)
        for uid in uids:
            self._onsets.pop(uid, None)

    def voters(self, path: str, now: float, within: float) -> dict[str, float]:
        """Who of a domain shows it, and since when; those who always do are left out."""
        since = now - within
        return {
            uid: at
            for uid, at in self._in.get(path, _NONE).items()
            if since < at <= now and not self._repeats(uid, now)
        }

    def latest_votes(self, path: str) -> Mapping[str, float]:
        """Who of a domain showed it last, and when, as far back as is remembered."""
        return self._in.get(path, _NONE)

    def domains(self) -> Iterator[str]:
        """Domains in which anybody shows it."""
        yield from self._in

    def lowest_domains(self, uid: str) -> Iterator[str]:
        """The lowest domains in which a node's vote counts."""
        return (path for path in self._paths.get(uid, ()) if not self._members.children(path))

    def significant_voters(
        self, path: str, now: float, share: float
    ) -> tuple[float, dict[str, float]] | None:
        """Whether more of a domain show it than chance explains: the window within which, and who; None
        where not.
        """
        size = self._members.size(path)
        if size < self._rule.nodes or len(self._in.get(path, _NONE)) < self._rule.nodes:
            return None
        by_share = max(self._rule.nodes, -int(-share * size // 1))
        rate = self._rate.per_node(len(self._members), now, self.vote_class.rate / _DAY)
        for window in self.vote_class.windows:
            voters = self.voters(path, now, window)
            if len(voters) < by_share:
                continue
            if significance(len(voters), size, self._chance(rate, window)) >= self._rule.surprise:
                return window, voters
        return None

    def tally(self, path: str, now: float) -> VoteTally:
        """What a domain shows now, within the window in which it is nearest to be hit."""
        size, children = self._members.size(path), self._members.children(path)
        share = self.vote_rules[self._members.topology_of(path)].share if children else self.vote_class.share
        by_share = max(self._rule.nodes, -int(-share * size // 1))
        rate = self._rate.per_node(len(self._members), now, self.vote_class.rate / _DAY)
        found = []
        for window in self.vote_class.windows:
            by_chance = fewest_significant(size, self._chance(rate, window), self._rule.surprise)
            voters = self.voters(path, now, window)
            found.append(
                VoteTally(
                    self.vote_class.name, self.vote_class.phrase, window, voters, size, by_share, by_chance
                )
            )
        return max(found, key=lambda one: len(one.voters) / max(1, one.required))

    def _chance(self, rate: float, window: float) -> float:
        """How likely it is thought that one node shows it within a window by chance."""
        return min(0.999, self._rule.caution * rate * window)

    def is_spread(self, path: str, where: VoteTopology, voters: Mapping[str, float]) -> bool:
        """Whether what a parent's voters show is spread over what it consists of."""
        children = self._members.children(path)
        if len(children) < 2:
            return False
        many = 0
        for child in children:
            of = self._members.nodes(child)
            part = len(of & voters.keys())
            if part > where.max_child_share * len(voters):
                return False
            few = 1 if len(of) <= _SMALL else where.votes
            many += part >= max(few, where.child * len(of))
        return many >= (-(-len(children) // 2) if len(children) > 2 else 2)

    def _put(self, uid: str, at: float) -> None:
        self._latest.pop(uid, None)
        self._latest[uid] = at  # the latest comes last
        self._paths[uid] = tuple(
            path for path in self._members.paths(uid) if self._members.topology_of(path) in self._views[uid]
        )
        for path in self._paths[uid]:
            self._in.setdefault(path, {})[uid] = at

    def _repeats(self, uid: str, now: float) -> bool:
        """Whether a node showed it again and again before it could belong to anything that happens now."""
        onsets = self._onsets.get(uid, ())
        if len(onsets) < self._rule.repeats:
            return False
        end = now - self.longest_window
        return sum(1 for at in onsets if end - _DAY <= at < end) >= self._rule.repeats


# Onsets of a node that are remembered; and children of so few nodes need one vote.
_ONSETS = 32
_SMALL = 4
