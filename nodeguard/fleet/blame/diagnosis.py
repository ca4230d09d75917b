"""The diagnosis: from what single nodes show to the shared part that is to blame, or to the check that is not
to be believed. Pure: it is told of votes, and of the time.

The rule and the reasons for its constants stand in docs/domains.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from nodeguard.fleet.blame.blamed import Blamed, Held
from nodeguard.fleet.blame.blaming import SOON, Blaming
from nodeguard.fleet.blame.holds import Holds
from nodeguard.fleet.blame.past import Past
from nodeguard.fleet.blame.rollout import coincides
from nodeguard.fleet.blame.voting import Voting
from nodeguard.fleet.views.members import Members
from nodeguard.model.blame import VERSIONS, Blame

# Seconds between two looks while something is only waited for to end, and no more than this part of the time
# that it takes.
_LATER = 60.0
_PART = 0.1


class Diagnosis:
    """What is known of what the nodes of a fleet share, and of who showed what.

    second: whether another source bears out what a check found on a node.
    """

    def __init__(self, rule: Blame, second: Callable[[str, str], bool]) -> None:
        past = self._past = Past(rule)
        self.rule = rule
        self.voting = Voting(rule)
        self._blaming = Blaming(rule, self.voting, past)
        self._holds = Holds(rule, self.voting, past, second)
        self._looked: float | None = None

    @property
    def members(self) -> Members:
        """The nodes that may vote, with their domains."""
        return self.voting.members

    @property
    def blamed(self) -> Mapping[str, Blamed]:
        """What is to blame, by domain."""
        return self._blaming.blamed

    @property
    def held(self) -> Mapping[str, Held]:
        """What is not to be believed, by check."""
        return self._holds.held

    def place(self, uid: str, paths: Iterable[str], now: float) -> None:
        """A node that may vote, with its domains; without any, it may not."""
        self.voting.place(uid, paths, now)

    def gone(self, uid: str, now: float) -> None:
        """A node that is no more."""
        self.voting.gone(uid, now)

    def vote(self, uid: str, check: str, views: Iterable[str], at: float) -> None:
        """A check fires on a node where it did not, which may be told of in some views."""
        if self.voting.fire(uid, check, at) and not self.holds(check, uid):
            self.voting.vote(uid, check, tuple(views), at)

    def over(self, uid: str, check: str) -> None:
        """It does not fire there any more."""
        self.voting.over(uid, check)

    def holds(self, check: str, uid: str) -> Held | None:
        """Why nothing is done for a check on a node; None where something may be."""
        return self._holds.of(check, uid)

    def doubts(self, check: str) -> bool:
        """Whether a check fires on more nodes than anything explains, and may be held for that soon."""
        return check in self._holds.doubted

    def fits(self, check: str, kinds: Iterable[str]) -> bool:
        """Whether a check has voted in one of some classes of faults."""
        return not self.voting.cast(check).keys().isdisjoint(kinds)

    def succeed(self, other: Diagnosis) -> None:
        """Go on with what another diagnosis blames and holds, and has learnt of how often that was."""
        self._blaming.succeed(other._blaming)
        self._holds.succeed(other._holds)
        self._past.succeed(other._past)
        self.voting.began = other.voting.began

    def recall(self, domain: str, name: str, kinds: Iterable[str], began: float, now: float) -> None:
        """A domain that was blamed before this diagnosis began. Nothing of its votes is known."""
        self._blaming.recall(domain, name, kinds, began, now)

    def recall_held(self, check: str, domain: str, now: float) -> None:
        """A check that was held before this diagnosis began; domain: the version on which it was alone."""
        self._holds.recall(check, domain, now)

    def clear(self, what: str, now: float) -> None:
        """A domain or a check that is in order, on somebody's word."""
        self._blaming.clear(what, now)
        self._holds.clear(what, now)

    def due(self) -> float | None:
        """When to look again though nothing was told: seconds of the clock; None for not at all."""
        undecided = self._blaming.clocks or self._holds.doubted
        if not (undecided or self.blamed or self.held):
            return None
        if self._looked is None:
            return -inf
        return self._looked + (SOON if undecided else min(_LATER, self.rule.clear * _PART))

    def settle(self, now: float) -> bool:
        """Look at what is known. now: seconds of the clock. Returns whether what is said has changed."""
        self.voting.begin(now)
        due = self.due()
        if not self.voting.stirred and (due is None or now < due):
            return False
        said = dict(self.blamed), dict(self.held)
        self.voting.forget(self.held, now)
        candidates = self._blaming.choose(self.held, now)
        self._holds.doubt(candidates, self._blaming.explained, now)
        self._holds.hold(now)
        for one in list(self._blaming.settled(candidates, now)):
            checks = list(self.voting.shown(one.kind, one.voters))
            # While it is not sure whether to believe a check, nothing is blamed for it.
            if any(self.doubts(check) or check in self.held for check in checks):
                continue
            version = one.domain if self.members.view_of(one.domain) in VERSIONS else ""
            version = version or coincides(self.members, one, self.voting.changed, now)
            if not version:
                self._blaming.begin(one, now)
                continue
            self._blaming.drop(one)
            for check in checks:
                self._holds.begin(check, one.voters, one.window, version, now)
        self._blaming.let_go(now)
        self._holds.let_go(now)
        self.voting.stirred.clear()
        self._looked = now
        return said != (self.blamed, self.held)
