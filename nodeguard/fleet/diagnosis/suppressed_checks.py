"""Suppressed checks: they fire on more nodes than chance and shared causes explain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from functools import partial

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.candidates import common_version
from nodeguard.fleet.diagnosis.check_firings import PriorRate, UnexplainedFirings
from nodeguard.fleet.diagnosis.results import Candidate, Recurrence, SuppressedCheck
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, DiagnosisPolicy

# Nodes of one leaf that count as independent: a gang that starts badly affects many of them.
_OF_ONE = 2

# Minimum exponent of the bound on chance, one in a thousand, for a domain with more than its share.
_MIN_SIGNIFICANCE = 6.9

# So many affected domains at once, of different parents, are more than shared hardware that fails.
_MANY = 3


def suspected_checks(
    checks: Iterable[str],
    votes: VoteIndex,
    candidates: Iterable[Candidate],
    explained: Callable[[str], Set[str]],
    now: float,
) -> dict[str, UnexplainedFirings]:
    """Return the checks to suspect, with the nodes on which nothing explains them.

    candidates: domains that may be degraded. explained: returns the nodes on which a cause explains a check.
    """
    candidates, members = tuple(candidates), votes.members
    suspected = {}
    for check in checks:
        firings, classes = votes.firings[check], votes.classes_of(check)
        topologies = {topology for class_votes in classes.values() for topology in class_votes.vote_rules}
        usual = max(
            (class_votes.vote_class.daily_rate * len(members) for class_votes in classes.values()),
            default=0.0,
        )
        own = [candidate for candidate in candidates if candidate.fault_class in classes]
        excluded = set(explained(check))
        before = PriorRate(usual, now if votes.began is None else votes.began)
        unexplained = firings.unexplained(excluded, len, before, now) if _everywhere(own, members) else None
        if unexplained is None:
            excluded = excluded.union(*(members.nodes(candidate.domain) for candidate in own))
            count = partial(_independent_nodes, topologies=topologies, members=members)
            unexplained = firings.unexplained(excluded, count, before, now)
            if unexplained is not None and _in_one(unexplained.nodes, members):
                unexplained = None
        if unexplained is not None:
            suspected[check] = unexplained
    return suspected


def _everywhere(candidates: Iterable[Candidate], members: DomainMembers) -> bool:
    """Return whether domains in too many locations are affected at once."""
    parents = {members.parent(candidate.domain) or candidate.domain for candidate in candidates}
    return len(parents) >= _MANY


def _independent_nodes(uids: Collection[str], topologies: Set[str], members: DomainMembers) -> int:
    """Return how many independent nodes some count as: few of any leaf in which the check votes."""
    counts: Counter[str] = Counter()
    for uid in uids:
        leaves = (path for path in members.paths(uid) if not members.children(path))
        counts[next((path for path in leaves if members.topology_of(path) in topologies), uid)] += 1
    return sum(min(count, _OF_ONE) for count in counts.values())


def _in_one(uids: frozenset[str], members: DomainMembers) -> bool:
    """Return whether one parent domain has most of the nodes, and more than by chance."""
    counts: dict[str, int] = {}
    for uid in uids:
        for path in members.paths(uid):
            counts[path] = counts.get(path, 0) + 1
    return any(
        count * 2 > len(uids)
        and members.topology_of(path) in LOCATION_TOPOLOGIES
        and members.children(path)
        and significance(count, len(uids), members.size(path) / len(members)) >= _MIN_SIGNIFICANCE
        for path, count in counts.items()
    )


# Seconds after the start by which all agents have reported.
_ALL_REPORTED = 60.0


class SuppressedChecks:
    """The suppressed checks. suppressed: by check. suspected: since when, by check; suppressed soon, unless
    explained.
    """

    def __init__(
        self,
        rule: DiagnosisPolicy,
        votes: VoteIndex,
        recurrence: Recurrence,
        confirmed: Callable[[str, str], bool],
    ) -> None:
        self.suppressed: dict[str, SuppressedCheck] = {}
        self.suspected: dict[str, float] = {}
        self._rule = rule
        self._votes = votes
        self._recurrence = recurrence
        self._confirmed = confirmed
        self._unexplained: dict[str, UnexplainedFirings] = {}

    def suppression(self, check: str, uid: str) -> SuppressedCheck | None:
        """Return the suppression of a check on a node; None if it is not suppressed there."""
        suppressed = self.suppressed.get(check)
        if suppressed is None:
            return None
        is_covered = not suppressed.domain or uid in self._votes.members.nodes(suppressed.domain)
        return suppressed if is_covered else None

    def restore(self, check: str, domain: str, now: float) -> None:
        """Restore a check that was suppressed before this start; domain: the only version with the
        suppression.
        """
        self.suppressed.setdefault(check, SuppressedCheck(check, now, (), 0, 0.0, domain=domain))

    def take_over(self, other: SuppressedChecks) -> None:
        """Continue with the suppressed checks of another diagnosis."""
        self.suppressed.update(other.suppressed)

    def update_suspected(
        self, candidates: Collection[Candidate], explained: Callable[[str], Set[str]], now: float
    ) -> None:
        """Update the suspected checks. candidates: domains that may be degraded; explained: returns the nodes
        of the domains that are degraded for a fault class.
        """
        votes = self._votes
        checks = [
            check
            for check in votes.changed_checks | self.suspected.keys()
            if check in votes.firings and (check not in self.suppressed or self.suppressed[check].domain)
        ]

        def excluded(check: str) -> set[str]:
            suppressed = self.suppressed.get(check)
            nodes = set(votes.members.nodes(suppressed.domain)) if suppressed is not None else set()
            return nodes.union(*(explained(fault_class) for fault_class in votes.classes_of(check)))

        self._unexplained = suspected_checks(checks, votes, candidates, excluded, now)
        self.suspected = {check: self.suspected.get(check, now) for check in self._unexplained}

    def suppress_settled(self, now: float) -> None:
        """Suppress the checks that have been suspected for long enough."""
        for check, since in list(self.suspected.items()):
            if now - since >= self._rule.grace_period:
                unexplained = self._unexplained[check]
                domain = common_version(self._votes.members, unexplained.nodes)
                self.suppress(check, unexplained.nodes, unexplained.window, domain, now, unexplained.limit)
                del self.suspected[check]

    def suppress(
        self, check: str, uids: Iterable[str], window: float, domain: str, now: float, limit: int = 0
    ) -> None:
        """Suppress a check that fires on some nodes. domain: the only version with it, or empty."""
        uids = sorted(uids)
        confirmed = sum(1 for uid in uids if self._confirmed(uid, check))
        self.suppressed[check] = SuppressedCheck(
            check=check,
            since=now,
            nodes=tuple(uids),
            limit=limit,
            within=window,
            confirmed=confirmed >= max(2, self._rule.confirmed_share * len(uids)),
            domain=domain,
            times=self._recurrence.times(check, now) + 1,
        )
        firings = self._votes.firings.get(check)
        self._votes.withdraw(check, list(firings.latest) if firings is not None and not domain else uids)

    def clear(self, check: str, now: float) -> None:
        """Clear a check: its findings count again."""
        if self.suppressed.pop(check, None) is not None:
            self._recurrence.record_end(check, now)
            self._votes.firings.pop(check, None)

    def clear_recovered(self, now: float) -> None:
        """Clear the checks that have been quiet for long enough."""
        for check, suppressed in list(self.suppressed.items()):
            firings = self._votes.firings.get(check)
            waited = self._recurrence.clearing_time(suppressed.times)
            if not suppressed.nodes and firings is not None and now - suppressed.since >= _ALL_REPORTED:
                # A restored suppression is about the nodes that show the check now.
                suppressed = replace(suppressed, nodes=tuple(sorted(firings.active)))  # noqa: PLW2901
                self.suppressed[check] = suppressed
            if now - suppressed.since < waited:
                continue
            recent, active = 0, set[str]()
            if firings is not None:
                recent = sum(1 for at in firings.latest.values() if at > now - waited)
                active = firings.active & set(suppressed.nodes)
            if max(recent, len(active)) < max(2, len(suppressed.nodes) / 2):
                self.clear(check, now)
