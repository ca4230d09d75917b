"""Who shows what, and since when: the votes of all nodes, by class of faults and by check. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from nodeguard.fleet.blame.ballot import Ballot
from nodeguard.fleet.blame.blamed import Tally
from nodeguard.fleet.blame.watch import Watch
from nodeguard.fleet.modes import one_of
from nodeguard.fleet.views.members import Members
from nodeguard.model.blame import SILENT, VERSIONS, Blame


class Voting:
    """members: the nodes that may vote, with their domains. ballots: by class of faults. watches: by check.

    began: when it was first looked at what is known. stirred: checks that fired since it was last; fresh: who
    voted since, by class. changed: when a version came to a node that had another, by uid and domain.
    """

    def __init__(self, rule: Blame) -> None:
        self.members = Members()
        self.ballots = {kind.name: Ballot(kind, rule, self.members) for kind in rule.classes}
        self.watches: dict[str, Watch] = {}
        self.stirred: set[str] = set()
        self.fresh: dict[str, set[str]] = {kind.name: set() for kind in rule.classes}
        self.changed: dict[tuple[str, str], float] = {}
        self.began: float | None = None
        self._rule = rule
        self._may: dict[str, tuple[Ballot, ...]] = {}
        self._cast: dict[str, dict[str, Ballot]] = {}

    def begin(self, now: float) -> None:
        """From now on it is looked at what is known, unless it was before."""
        if self.began is None:
            self.began = now

    def place(self, uid: str, paths: Iterable[str], now: float) -> None:
        """A node that may vote, with its domains; without any, it may not."""
        had = self.members.paths(uid)
        if not self.members.place(uid, paths):
            return
        there = self.members.paths(uid)
        if had and there:
            for path in set(there) - set(had):
                if self.members.view_of(path) in VERSIONS:
                    self.changed[uid, path] = now
        for path in set(had) - set(there):
            self.changed.pop((uid, path), None)
        for name, ballot in self.ballots.items():
            if ballot.moved(uid):
                self.fresh[name].add(uid)
                self.stirred.update(check for check, kinds in self._cast.items() if name in kinds)
        if not there:
            for watch in self.watches.values():
                watch.drop(uid)

    def gone(self, uid: str, now: float) -> None:
        """A node that is no more."""
        self.place(uid, (), now)
        for ballot in self.ballots.values():
            ballot.gone(uid)

    def fire(self, uid: str, check: str, at: float) -> bool:
        """A check fires on a node where it did not. Returns whether the node may vote."""
        if not self.members.paths(uid):
            return False
        watch = self.watches.get(check)
        if watch is None:
            watch = self.watches[check] = Watch(self._rule)
        watch.note(uid, at)
        self.stirred.add(check)
        return True

    def vote(self, uid: str, check: str, views: tuple[str, ...], at: float) -> None:
        """What fires on a node may be told of in some views."""
        for ballot in self._voting(check):
            if not ballot.where.keys().isdisjoint(views):
                ballot.vote(uid, views, at)
                self._cast.setdefault(check, {})[ballot.kind.name] = ballot
                self.fresh[ballot.kind.name].add(uid)

    def over(self, uid: str, check: str) -> None:
        """It does not fire there any more."""
        watch = self.watches.get(check)
        if watch is not None:
            watch.active.discard(uid)

    def withdraw(self, check: str, uids: Iterable[str]) -> None:
        """What a check found on some nodes does not count."""
        for ballot in self.cast(check).values():
            for uid in uids:
                ballot.leave(uid)

    def cast(self, check: str) -> Mapping[str, Ballot]:
        """Where a check has voted: by class of faults."""
        return self._cast.get(check, _NONE)

    def lasting(self, kind: str, held: Container[str] = ()) -> set[str]:
        """Nodes that show a class of faults at this moment. held: checks that are not believed."""
        found: set[str] = set()
        for check, watch in self.watches.items():
            if check not in held and kind in self.cast(check):
                found |= watch.active
        return found

    def shown(self, kind: str, uids: Iterable[str]) -> Iterator[str]:
        """Checks that tell of a class of faults on any of some nodes."""
        who = frozenset(uids)
        for check, watch in self.watches.items():
            if kind in self.cast(check) and not who.isdisjoint(watch.latest):
                yield check

    def tallies(self, domain: str, now: float) -> tuple[Tally, ...]:
        """What a domain shows now of each class of faults that may be told of in its view."""
        view = self.members.view_of(domain)
        return tuple(one.tally(domain, now) for one in self.ballots.values() if view in one.where)

    def votes(self, domain: str, kinds: Iterable[str]) -> dict[str, float]:
        """Who of a domain showed any of some classes of faults, and when last, as far as is remembered."""
        found: dict[str, float] = {}
        for kind in kinds:
            for uid, at in self.ballots[kind].all_of(domain).items():
                found[uid] = max(at, found.get(uid, at))
        return found

    def stirring(self, now: float) -> dict[str, int]:
        """Domains that show anything that may be told of them, with how many of their nodes do."""
        found: dict[str, set[str]] = {}
        for ballot in self.ballots.values():
            for path in ballot.domains():
                found.setdefault(path, set()).update(ballot.voters(path, now, ballot.longest))
        return {path: len(uids) for path, uids in found.items() if uids}

    def forget(self, held: Iterable[str], now: float) -> None:
        """Let go of what is too old to matter. held: checks of which nothing is learnt."""
        began = now if self.began is None else self.began
        for ballot in self.ballots.values():
            ballot.forget(began, now)
        held = frozenset(held)
        for name, watch in list(self.watches.items()):
            watch.forget(began, now, learns=name not in held)
            if watch.is_idle and name not in held:
                del self.watches[name]
        if len(self._may) > _NAMES:
            self._may.clear()
        if len(self._cast) > _NAMES:
            self._cast = {name: cast for name, cast in self._cast.items() if name in self.watches}

    def _voting(self, check: str) -> tuple[Ballot, ...]:
        found = self._may.get(check)
        if found is None:
            # That nothing is heard of a node is a class of its own, whatever else any check may show.
            found = self._may[check] = tuple(
                one
                for one in self.ballots.values()
                if check in one.kind.checks or (check != SILENT and one_of(one.kind.checks)(check))
            )
        return found


_NONE: dict[str, Ballot] = {}

# Names of checks that are remembered though nothing else is known of them: agents may make up any.
_NAMES = 4096
