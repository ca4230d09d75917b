"""The index of votes: of all nodes, by fault class and by check. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from math import inf

from nodeguard.fleet.diagnosis.check_firings import CheckFirings
from nodeguard.fleet.diagnosis.results import ALL_REPORTED, VoteTally
from nodeguard.fleet.diagnosis.shared_versions import SharedVersions
from nodeguard.fleet.diagnosis.significance import OnsetRate
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.policy_rules import matches_any
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy


class VoteIndex:
    """The votes and firings. members: the nodes that may vote, with their domains. votes_by_class: by fault
    class. firings: by check, of all that were reported.

    began: time of the first evaluation; infinity before. has_changed: whether the latest evaluation is out of
    date. new_onsets: nodes on which checks fired since then, by check. versions: of all nodes. earlier_term:
    from when until when an earlier aggregator led; late: nodes with a first report long after the start of
    this one.
    """

    def __init__(self, rule: DiagnosisPolicy, nodes: DomainMembers) -> None:
        """nodes: all by domain, also those that may not vote."""
        self.rule = rule
        self.members = DomainMembers()
        self.votes_by_class: dict[str, FaultVotes] = {}
        self.firings: dict[str, CheckFirings] = {}
        self.has_changed = False
        self.new_onsets: dict[str, set[str]] = {}
        self.versions = SharedVersions(self.members)
        self.began = inf
        self.earlier_term = (inf, -inf)
        self.late: set[str] = set()
        self._nodes = nodes
        # The usual rates of the fault classes, and when domains were last cleared, also of earlier rules.
        self._rates: defaultdict[str, OnsetRate] = defaultdict(OnsetRate)
        self._ends: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self.set_rule(rule)

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Set another rule. Its fault classes have no votes yet."""
        self.rule = rule
        self.votes_by_class = {
            item.name: FaultVotes(item, rule, self.members, self._rates[item.name], self._ends[item.name])
            for item in rule.classes
        }
        for check, firings in self.firings.items():
            firings.rule, firings.classes = rule, self._classes(check, firings.topologies)
        self.has_changed |= bool(self.firings)

    def begin(self, now: float) -> None:
        """Begin the evaluation at a time, unless it began before."""
        self.began = min(self.began, now)

    def set_domains(self, uid: str, paths: Iterable[str]) -> bool:
        """Set the domains of a node that may vote; without any, it may not. Returns whether they changed."""
        if not self.members.set_domains(uid, paths):
            return False
        have_votes = [votes.update_domains(uid) for votes in self.votes_by_class.values()]
        self.has_changed |= any(have_votes)
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

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.set_domains(uid, ())
        self.late.discard(uid)
        self.versions.remove_node(uid)
        for votes in self.votes_by_class.values():
            votes.remove_node(uid)

    def record_firing(self, uid: str, check: str, at: float, *, observed: bool = True) -> bool:
        """Record that a check begins to fire on a node. observed: see CheckFirings. Returns whether the node
        may vote: not while the check is suppressed there, or with an onset from before the end of that.
        """
        firings = self.firings_of(check)
        has_ended = firings.confine(uid, at) or firings.has_ended(uid, at)
        if has_ended:
            self.record_active(uid, check)
        if has_ended or not self.members.paths(uid):
            return False
        firings.record(uid, at, observed=observed)
        self.has_changed = True
        self.new_onsets.setdefault(check, set()).add(uid)
        return firings.suppression(uid) is None

    def vote(self, uid: str, check: str, topologies: Iterable[str], at: float) -> None:
        """Vote for a check on a node, with a fault that may be shared in some topologies."""
        topologies = tuple(topologies)
        self.add_check(check, topologies)
        for votes in self.classes_of(check).values():
            if not votes.vote_rules.keys().isdisjoint(topologies):
                votes.vote(uid, topologies, at)

    def add_check(self, check: str, topologies: Iterable[str], *, warns: bool | None = None) -> None:
        """Add a check, with the topologies in which it may vote. warns: whether a finding of it is a warning,
        which asks for no mark; None without a finding, as of an injected fault.
        """
        firings = self.firings_of(check)
        if not firings.topologies.issuperset(topologies):
            firings.topologies = firings.topologies.union(topologies)
            firings.classes = self._classes(check, firings.topologies)
        if warns is not None:
            firings.only_warns = warns and firings.only_warns is not False

    def record_active(self, uid: str, check: str) -> None:
        """Record that a check fires on a node, if that node may vote, without an onset."""
        if self.members.paths(uid):
            self.firings_of(check).active.add(uid)

    def withdraw(self, check: str, uids: Iterable[str]) -> None:
        """Withdraw the votes for a check on some nodes, as if it had not voted there. The other checks of its
        classes need another evaluation.
        """
        nodes = frozenset(uids)
        for name, votes in self.classes_of(check).items():
            checks = [firings for _, firings in self.checks_of(name)]
            for uid in nodes:
                firing = [firings for firings in checks if uid in firings.latest]
                self.has_changed |= bool(firing)
                onsets = (firings.latest[uid] for firings in firing if firings.suppression(uid) is None)
                votes.replace_vote(uid, max(onsets, default=None))

    def classes_of(self, check: str) -> Mapping[str, FaultVotes]:
        """Return the votes of the fault classes in which a check may vote, by fault class."""
        return self.firings_of(check).classes

    def touch(self, uid: str) -> None:
        """Evaluate the checks that fire on a node again: its domains or its jobs changed."""
        self.has_changed |= any(uid in firings.latest for firings in self.firings.values())

    def current_voters(self, now: float) -> dict[str, float]:
        """Return the nodes with a vote that may still count, with their latest vote, by uid."""
        voters: dict[str, float] = {}
        for votes in self.votes_by_class.values():
            for uid, at in votes.current_voters(now).items():
                voters[uid] = max(at, voters.get(uid, at))
        return voters

    def active_nodes(self, fault_class: str, suppressed: Container[str] = ()) -> set[str]:
        """Return the nodes that show a fault class now, by checks that are not suppressed."""
        checks = self.checks_of(fault_class)
        return set[str]().union(*(firings.active for check, firings in checks if check not in suppressed))

    def checks_of(self, fault_class: str) -> Iterator[tuple[str, CheckFirings]]:
        """Yield the checks that may vote in a fault class, with their firings."""
        return ((check, own) for check, own in self.firings.items() if fault_class in own.classes)

    def checks_on(self, fault_class: str, uids: Iterable[str]) -> list[str]:
        """Return the checks that show a fault class on any of some nodes."""
        nodes = frozenset(uids)
        checks = self.checks_of(fault_class)
        return [check for check, firings in checks if not nodes.isdisjoint(firings.latest)]

    def tallies(self, domain: str, now: float) -> tuple[VoteTally, ...]:
        """Return the votes in a domain now, for each fault class that may be shared in its topology."""
        topology = self.members.topology_of(domain)
        votes_of_topology = (votes for votes in self.votes_by_class.values() if topology in votes.vote_rules)
        return tuple(votes.tally(domain, now) for votes in votes_of_topology)

    def latest_votes(self, domain: str, fault_classes: Iterable[str]) -> dict[str, float]:
        """Return the latest votes in a domain for some fault classes, by uid, as far as is remembered."""
        latest: dict[str, float] = {}
        for fault_class in fault_classes:
            votes = self.votes_by_class[fault_class].latest_votes(domain)
            latest |= {uid: at for uid, at in votes.items() if at > latest.get(uid, -inf)}
        return latest

    def affected_domains(self, now: float) -> dict[str, int]:
        """Return the number of nodes with votes, of each domain with any."""
        voters: dict[str, set[str]] = {}
        for votes in self.votes_by_class.values():
            for path in votes.domains():
                voters.setdefault(path, set()).update(votes.voters(path, now, votes.longest_window))
        return {path: len(uids) for path, uids in voters.items() if uids}

    def forget(self, now: float) -> None:
        """Forget old votes and firings."""
        for votes in self.votes_by_class.values():
            votes.forget(self.began, now)
        for firings in self.firings.values():
            firings.forget(self.began, now)
        if len(self.firings) > _NAMES:
            self.firings = {
                check: firings
                for check, firings in self.firings.items()
                if check == STALE_CHECK or not firings.is_idle
            }

    def firings_of(self, check: str) -> CheckFirings:
        """Return the firings of a check."""
        firings = self.firings.get(check)
        if firings is None:
            firings = self.firings[check] = CheckFirings(self.rule, self._nodes)
            self.has_changed |= len(self.firings) > _NAMES  # the next evaluation forgets unused ones
        return firings

    def _classes(self, check: str, topologies: Set[str]) -> dict[str, FaultVotes]:
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


# Maximum number of unused check names that are remembered: an agent may invent any.
_NAMES = 1024
