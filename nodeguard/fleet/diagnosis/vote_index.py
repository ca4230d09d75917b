"""Who shows what, and since when: the votes of all nodes, by class of faults and by check. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from nodeguard.fleet.diagnosis.check_firings import CheckFirings
from nodeguard.fleet.diagnosis.results import VoteTally
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.policy_rules import matches_any
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import STALE_CHECK, VERSION_TOPOLOGIES, DiagnosisPolicy


class VoteIndex:
    """members: the nodes that may vote, with their domains. ballots: by class of faults. watches: by check.

    began: when it was first looked at what is known. stirred: checks that fired since it was last; fresh: who
    voted since, by class. changed: when a version came to a node that had another, by uid and domain.
    """

    def __init__(self, rule: DiagnosisPolicy) -> None:
        self.members = DomainMembers()
        self.votes_by_class = {kind.name: FaultVotes(kind, rule, self.members) for kind in rule.classes}
        self.firings: dict[str, CheckFirings] = {}
        self.changed_checks: set[str] = set()
        self.new_voters: dict[str, set[str]] = {kind.name: set() for kind in rule.classes}
        self.version_changes: dict[tuple[str, str], float] = {}
        self.began: float | None = None
        self._rule = rule
        self._may: dict[str, tuple[FaultVotes, ...]] = {}
        self._cast: dict[str, dict[str, FaultVotes]] = {}

    def begin(self, now: float) -> None:
        """From now on it is looked at what is known, unless it was before."""
        if self.began is None:
            self.began = now

    def set_domains(self, uid: str, paths: Iterable[str], now: float) -> None:
        """A node that may vote, with its domains; without any, it may not."""
        had = self.members.paths(uid)
        if not self.members.set_domains(uid, paths):
            return
        there = self.members.paths(uid)
        if had and there:
            for path in set(there) - set(had):
                if self.members.topology_of(path) in VERSION_TOPOLOGIES:
                    self.version_changes[uid, path] = now
        for path in set(had) - set(there):
            self.version_changes.pop((uid, path), None)
        for name, ballot in self.votes_by_class.items():
            if ballot.update_domains(uid):
                self.new_voters[name].add(uid)
                self.changed_checks.update(check for check, kinds in self._cast.items() if name in kinds)
        if not there:
            for watch in self.firings.values():
                watch.remove_node(uid)

    def remove_node(self, uid: str, now: float) -> None:
        """A node that is no more."""
        self.set_domains(uid, (), now)
        for ballot in self.votes_by_class.values():
            ballot.remove_node(uid)

    def record_firing(self, uid: str, check: str, at: float) -> bool:
        """A check fires on a node where it did not. Returns whether the node may vote."""
        if not self.members.paths(uid):
            return False
        watch = self.firings.get(check)
        if watch is None:
            watch = self.firings[check] = CheckFirings(self._rule)
        watch.record(uid, at)
        self.changed_checks.add(check)
        return True

    def vote(self, uid: str, check: str, views: tuple[str, ...], at: float) -> None:
        """What fires on a node may be told of in some views."""
        for ballot in self._voting(check):
            if not ballot.vote_rules.keys().isdisjoint(views):
                ballot.vote(uid, views, at)
                self._cast.setdefault(check, {})[ballot.vote_class.name] = ballot
                self.new_voters[ballot.vote_class.name].add(uid)

    def record_cleared(self, uid: str, check: str) -> None:
        """It does not fire there any more."""
        watch = self.firings.get(check)
        if watch is not None:
            watch.active.discard(uid)

    def withdraw(self, check: str, uids: Iterable[str]) -> None:
        """What a check found on some nodes does not count."""
        for ballot in self.classes_of(check).values():
            for uid in uids:
                ballot.withdraw(uid)

    def classes_of(self, check: str) -> Mapping[str, FaultVotes]:
        """Where a check has voted: by class of faults."""
        return self._cast.get(check, _NONE)

    def active_nodes(self, kind: str, held: Container[str] = ()) -> set[str]:
        """Nodes that show a class of faults at this moment. held: checks that are not believed."""
        found: set[str] = set()
        for check, watch in self.firings.items():
            if check not in held and kind in self.classes_of(check):
                found |= watch.active
        return found

    def checks_of(self, kind: str, uids: Iterable[str]) -> Iterator[str]:
        """Checks that tell of a class of faults on any of some nodes."""
        who = frozenset(uids)
        for check, watch in self.firings.items():
            if kind in self.classes_of(check) and not who.isdisjoint(watch.latest):
                yield check

    def tallies(self, domain: str, now: float) -> tuple[VoteTally, ...]:
        """What a domain shows now of each class of faults that may be told of in its view."""
        view = self.members.topology_of(domain)
        return tuple(one.tally(domain, now) for one in self.votes_by_class.values() if view in one.vote_rules)

    def latest_votes(self, domain: str, kinds: Iterable[str]) -> dict[str, float]:
        """Who of a domain showed any of some classes of faults, and when last, as far as is remembered."""
        found: dict[str, float] = {}
        for kind in kinds:
            for uid, at in self.votes_by_class[kind].latest_votes(domain).items():
                found[uid] = max(at, found.get(uid, at))
        return found

    def affected_domains(self, now: float) -> dict[str, int]:
        """Domains that show anything that may be told of them, with how many of their nodes do."""
        found: dict[str, set[str]] = {}
        for ballot in self.votes_by_class.values():
            for path in ballot.domains():
                found.setdefault(path, set()).update(ballot.voters(path, now, ballot.longest_window))
        return {path: len(uids) for path, uids in found.items() if uids}

    def forget(self, held: Iterable[str], now: float) -> None:
        """Let go of what is too old to matter. held: checks of which nothing is learnt."""
        began = now if self.began is None else self.began
        for ballot in self.votes_by_class.values():
            ballot.forget(began, now)
        held = frozenset(held)
        for name, watch in list(self.firings.items()):
            watch.forget(began, now, learns=name not in held)
            if watch.is_idle and name not in held:
                del self.firings[name]
        if len(self._may) > _NAMES:
            self._may.clear()
        if len(self._cast) > _NAMES:
            self._cast = {name: cast for name, cast in self._cast.items() if name in self.firings}

    def _voting(self, check: str) -> tuple[FaultVotes, ...]:
        found = self._may.get(check)
        if found is None:
            # That nothing is heard of a node is a class of its own, whatever else any check may show.
            found = self._may[check] = tuple(
                one
                for one in self.votes_by_class.values()
                if check in one.vote_class.checks
                or (check != STALE_CHECK and matches_any(one.vote_class.checks)(check))
            )
        return found


_NONE: dict[str, FaultVotes] = {}

# Names of checks that are remembered though nothing else is known of them: agents may make up any.
_NAMES = 4096
