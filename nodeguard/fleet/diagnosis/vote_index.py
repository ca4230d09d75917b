"""The index of votes: of all nodes, by fault class and by check. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Set
from math import inf

from msgspec import Struct

from nodeguard.fleet.diagnosis.check_firings import CheckFirings
from nodeguard.fleet.diagnosis.results import ALL_REPORTED, VoteTally, latest_times
from nodeguard.fleet.diagnosis.votes import AFTER_RECEIPT, BEFORE_RECEIPT, FaultVotes, VoteContext
from nodeguard.fleet.policy_rules import matches_any
from nodeguard.fleet.state.topology.members import path_prefixes
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.wire.versions import VersionReceipts


class _VotingCheck(Struct):
    """How a check votes: in which topologies, and in which fault classes. only_warns: whether all of its
    findings were warnings; None without any.
    """

    topologies: frozenset[str] = frozenset()
    classes: Mapping[str, FaultVotes] = {}
    only_warns: bool | None = None


class VoteIndex(VoteContext):
    """The votes and firings. votes_by_class: by fault class. firings: by check.

    has_changed: whether the latest evaluation may be out of date. new_onsets: the nodes on which each check
    fired since the latest evaluation.
    earlier_term: from when until when an earlier aggregator led; late: nodes with a first report long after
    the start of this one.
    """

    def __init__(self, rule: DiagnosisPolicy) -> None:
        super().__init__(rule)
        self.votes_by_class: dict[str, FaultVotes] = {}
        self.firings: dict[str, CheckFirings] = {}
        self.has_changed = False
        self.new_onsets: dict[str, set[str]] = {}
        self.earlier_term = (inf, -inf)
        self.late: set[str] = set()
        self._versions: dict[str, tuple[str, ...]] = {}  # the latest of each topology, by uid
        self._checks: dict[str, _VotingCheck] = {}
        # When the suppression of a check ended, by check and domain; empty for all nodes.
        self._ended: dict[tuple[str, str], float] = {}
        self.set_rule(rule)

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Set another rule. Its fault classes have no votes yet."""
        self.rule = rule
        self.votes_by_class = {item.name: FaultVotes(item, self) for item in rule.classes}
        for name, check in self._checks.items():
            check.classes = self._voting(name, check.topologies)
        self.has_changed |= bool(self.firings)

    def begin(self, now: float) -> None:
        """Begin the evaluation at a time, unless it began before."""
        self.began = min(self.began, now)

    def set_domains(self, uid: str, paths: Iterable[str]) -> bool:
        """Set the domains of a node that may vote; without any, it may not. Returns whether they changed."""
        if not self.members.set_domains(uid, paths):
            return False
        for votes in self.votes_by_class.values():
            self.has_changed |= votes.update_domains(uid)
        # A check that votes for nothing may be suppressed on the earlier domains only.
        self.touch(uid)
        if not self.members.paths(uid):
            for firings in self.firings.values():
                firings.remove_node(uid)
        return True

    def were_judged(self, votes: Mapping[str, float], wait: float) -> bool:
        """Return whether an earlier aggregator led for long enough to decide after all of some votes. It may
        have known more, such as the cordons of a maintenance. votes: onsets, by uid; wait: seconds for which
        a decision waits.
        """
        began, ended = self.earlier_term
        latest = max(began, *votes.values())
        return latest + wait + ALL_REPORTED <= ended and self.late.isdisjoint(votes)

    def record_versions(
        self, uid: str, versions: Iterable[str], received: Mapping[str, float], now: float
    ) -> None:
        """Record the versions of a node, also of one that may not vote. versions: their domains. received:
        when the node received some of them, by its agent.
        """
        # The last prefix is the path itself, as a string that all nodes share.
        reported = tuple(path_prefixes(path)[-1] for path in versions)
        before = VersionReceipts(self._versions.get(uid, ()), self.version_changes.get(uid, {}))
        if reported == before.versions and not received:
            return
        after = before.update(reported, now)
        self._versions[uid] = after.versions
        changes = after.received | {path: at for path, at in received.items() if path in after.versions}
        if changes:
            self.version_changes[uid] = changes
        else:
            self.version_changes.pop(uid, None)

    def received_before(self, uid: str, at: float) -> set[str]:
        """Return the topologies of the versions that a node received shortly before a time."""
        changes = self.version_changes.get(uid, {}).items()
        recent = (path for path, received in changes if -BEFORE_RECEIPT <= at - received <= AFTER_RECEIPT)
        return set(map(self.members.topology_of, recent))

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.set_domains(uid, ())
        self.late.discard(uid)
        self._versions.pop(uid, None)
        self.version_changes.pop(uid, None)
        for votes in self.votes_by_class.values():
            votes.remove_node(uid)

    def record_firing(self, uid: str, check: str, at: float, *, observed: bool = True) -> bool:
        """Record that a check begins to fire on a node. observed: see CheckFirings. Returns whether the node
        may vote: not with an onset from before the end of a suppression.
        """
        if not self.members.paths(uid):
            return False
        ends = (
            end for (name, domain), end in self._ended.items() if name == check and self._is_in(uid, domain)
        )
        if at <= max(ends, default=-inf):
            self.record_active(uid, check)
            return False
        self._firings(check).record(uid, at, observed=observed)
        self.has_changed = True
        self.new_onsets.setdefault(check, set()).add(uid)
        return True

    def vote(self, uid: str, check: str, at: float, topologies: Iterable[str] | None = None) -> None:
        """Vote for a check on a node, with a fault that may be shared in some topologies; by default in all
        in which the check may vote.
        """
        self.add_check(check, topologies or ())
        topologies = self._checks[check].topologies if topologies is None else frozenset(topologies)
        for votes in self.classes_of(check).values():
            if not votes.vote_rules.keys().isdisjoint(topologies):
                votes.vote(uid, check, topologies, at)

    def add_check(self, check: str, topologies: Iterable[str], *, warns: bool | None = None) -> None:
        """Add a check, with the topologies in which it may vote. warns: whether a finding of it is a warning,
        which asks for no mark; None without a finding, as of an injected fault.
        """
        voting = self._checks.setdefault(check, _VotingCheck())
        if not voting.topologies.issuperset(topologies):
            voting.topologies = voting.topologies.union(topologies)
            voting.classes = self._voting(check, voting.topologies)
        if warns is not None:
            voting.only_warns = warns and voting.only_warns is not False

    def record_active(self, uid: str, check: str) -> None:
        """Record that a check fires on a node, if that node may vote, without an onset."""
        if self.members.paths(uid):
            self._firings(check).active.add(uid)

    def record_cleared(self, uid: str, check: str) -> None:
        """Record that a check does not fire on a node any more."""
        self.firings_of(check).active.discard(uid)

    def end_suppression(self, check: str, at: float, domain: str) -> None:
        """Record that the suppression of a check on the nodes of a domain, empty for all, ended: onsets up to
        a time do not count there, nor their votes.
        """
        self._ended[check, domain] = max(at, self._ended.get((check, domain), at))
        self.withdraw(check, self.firings_of(check).forget_onsets(at, lambda uid: self._is_in(uid, domain)))

    def _is_in(self, uid: str, domain: str) -> bool:
        return not domain or uid in self.members.nodes(domain)

    def withdraw(self, check: str, uids: Collection[str]) -> None:
        """Withdraw the votes for a check on some nodes: those for other checks of its classes count then."""
        for votes in self.classes_of(check).values():
            for uid in uids:
                self.has_changed |= votes.withdraw(uid, check)

    def is_past_event(self, check: str) -> bool:
        """Return whether a check reports a past event, which the start of a job may cause, too."""
        classes = self.classes_of(check).values()
        return any(matches_any(votes.vote_class.job_start_checks)(check) for votes in classes)

    def classes_of(self, check: str) -> Mapping[str, FaultVotes]:
        """Return the votes of the fault classes in which a check may vote, by fault class."""
        return self._checks.get(check, _NONE).classes

    def touch(self, uid: str) -> None:
        """Have a node on which checks fire evaluated again: its domains or its jobs changed."""
        self.has_changed |= any(uid in firings.latest for firings in self.firings.values())

    def current_voters(self, now: float) -> dict[str, float]:
        """Return the nodes with a vote that may still count, with their latest vote, by uid."""
        return latest_times(*(votes.current_voters(now) for votes in self.votes_by_class.values()))

    def only_warns(self, check: str) -> bool:
        """Return whether a check has only reported warnings, which may last longer than their cause."""
        return bool(self._checks.get(check, _NONE).only_warns)

    def usual_rate(self, check: str) -> float:
        """Return the prior rate of a check's unconfirmed onsets: of one node a day."""
        classes = [votes.vote_class for votes in self.classes_of(check).values()]
        if not self.only_warns(check):
            rates = (item.daily_rate for item in classes if item.normal_operation)
            return max(rates, default=_FAULT_RATE)
        return max((item.daily_rate for item in classes), default=_WARNING_RATE)

    def active_nodes(self, fault_class: str, suppressed: Container[str] = ()) -> set[str]:
        """Return the nodes that show a fault class now, by checks that are not suppressed."""
        checks = self.firings_by_check(fault_class)
        return set[str]().union(*(firings.active for check, firings in checks if check not in suppressed))

    def checks_of(self, fault_class: str, uids: Iterable[str]) -> Iterator[str]:
        """Yield the checks that show a fault class on any of some nodes."""
        nodes, checks = frozenset(uids), self.firings_by_check(fault_class)
        return (check for check, firings in checks if not nodes.isdisjoint(firings.latest))

    def firings_by_check(self, fault_class: str) -> Iterator[tuple[str, CheckFirings]]:
        """Yield the checks that may vote in a fault class, with their firings."""
        return (item for item in self.firings.items() if fault_class in self.classes_of(item[0]))

    def tallies(self, domain: str, now: float) -> tuple[VoteTally, ...]:
        """Return the votes in a domain now, for each fault class that may be shared in its topology."""
        topology = self.members.topology_of(domain)
        votes_of_topology = (votes for votes in self.votes_by_class.values() if topology in votes.vote_rules)
        return tuple(votes.tally(domain, now) for votes in votes_of_topology)

    def latest_votes(self, domain: str, fault_classes: Iterable[str]) -> dict[str, float]:
        """Return the latest votes in a domain for some fault classes, by uid, as far as is remembered."""
        return latest_times(*(self.votes_by_class[name].latest_in(domain) for name in fault_classes))

    def affected_domains(self, now: float) -> dict[str, int]:
        """Return the number of nodes with votes, of each domain with any."""
        voters: dict[str, set[str]] = {}
        for votes in self.votes_by_class.values():
            for path in {path for uid in votes.current_voters(now) for path in votes.domains(uid)}:
                voters.setdefault(path, set()).update(votes.voters(path, now, votes.longest_window))
        return {path: len(uids) for path, uids in voters.items() if uids}

    def forget(self, suppressed: Iterable[str], now: float) -> None:
        """Forget old votes and firings. suppressed: checks that do not count towards usual rates."""
        for votes in self.votes_by_class.values():
            votes.forget(now)
        oldest = now - max(self.rule.suppression.windows)
        self._ended = {key: at for key, at in self._ended.items() if at >= oldest}
        suppressed = frozenset(suppressed)
        for name, firings in list(self.firings.items()):
            firings.forget(now, learns=name not in suppressed)
            if firings.is_idle and name not in suppressed:
                del self.firings[name]
        if len(self._checks) > _NAMES:
            used = self.firings.keys() | {STALE_CHECK}
            self._checks = {name: check for name, check in self._checks.items() if name in used}

    def firings_of(self, check: str) -> CheckFirings:
        """Return the firings of a check; of one without any, they are empty and record nothing."""
        return self.firings.get(check) or CheckFirings(self)

    def _firings(self, check: str) -> CheckFirings:
        return self.firings.setdefault(check, self.firings_of(check))

    def _voting(self, check: str, topologies: Set[str]) -> dict[str, FaultVotes]:
        """Return the votes of the classes in which a check may vote. A stale agent is a fault class of its
        own, whatever the patterns of others.
        """
        return {
            name: votes
            for name, votes in self.votes_by_class.items()
            if not votes.vote_rules.keys().isdisjoint(topologies)
            and (
                check in votes.vote_class.checks
                or (check != STALE_CHECK and matches_any(votes.vote_class.checks)(check))
            )
        }


_NONE = _VotingCheck()

# Onsets of one check on one node a day, until the fleet's own rate is known: of a fault, as links fail in a
# training run on 16,384 GPUs (The Llama 3 herd of models, table 5: 35 interruptions by the network in 54 days
# on 2,048 nodes); and of a warning without a fault class of its own.
_FAULT_RATE, _WARNING_RATE = 0.0005, 0.02

# Maximum number of unused check names that are remembered: an agent may invent any.
_NAMES = 4096
