"""Checks that are not to be believed: they fire where nothing explains it, more than chance has it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Set
from functools import partial

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.check_firings import PriorRate, UnexplainedFirings
from nodeguard.fleet.diagnosis.recurrence import Recurrence
from nodeguard.fleet.diagnosis.results import Candidate, SuppressedCheck
from nodeguard.fleet.diagnosis.rollout import common_version
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, DiagnosisPolicy

# Nodes of one leaf that count as if each were for itself: a gang that starts badly shows on many of them.
_OF_ONE = 2

# The exponent of the bound on chance, one in a thousand, from which on a domain has more than its share.
_RARE = 6.9

# So many domains at once, of as many parents, are more than shared parts that fail together.
_MANY = 3


def suspected_checks(
    checks: Iterable[str],
    voting: VoteIndex,
    candidates: Iterable[Candidate],
    explained: Callable[[str], Set[str]],
    now: float,
) -> dict[str, UnexplainedFirings]:
    """Of some checks, those that are to be doubted, with the nodes that make it so.

    candidates: domains that may be to blame. explained: nodes on which it is known why a check fires.
    """
    candidates, members = tuple(candidates), voting.members
    found = {}
    for check in checks:
        watch, kinds = voting.firings[check], voting.classes_of(check)
        views = {view for ballot in kinds.values() for view in ballot.vote_rules}
        usual = max((ballot.vote_class.rate * len(members) for ballot in kinds.values()), default=0.0)
        its = [one for one in candidates if one.fault_class in kinds]
        known = set(explained(check))
        before = PriorRate(usual, now if voting.began is None else voting.began)
        crowd = watch.unexplained(known, len, before, now) if _everywhere(its, members) else None
        if crowd is None:
            known = known.union(*(members.nodes(one.domain) for one in its))
            crowd = watch.unexplained(known, partial(_apart, views=views, members=members), before, now)
            if crowd is not None and _in_one(crowd.nodes, members):
                crowd = None
        if crowd is not None:
            found[check] = crowd
    return found


def _everywhere(candidates: Iterable[Candidate], members: DomainMembers) -> bool:
    """Whether domains are hit in too many places at once."""
    parents = {members.parent(one.domain) or one.domain for one in candidates}
    return len(parents) >= _MANY


def _apart(who: Collection[str], views: Set[str], members: DomainMembers) -> int:
    """For how many nodes some count: few of any one leaf of the views in which a check votes."""
    found: Counter[str] = Counter()
    for uid in who:
        leaves = (path for path in members.paths(uid) if not members.children(path))
        found[next((path for path in leaves if members.topology_of(path) in views), uid)] += 1
    return sum(min(many, _OF_ONE) for many in found.values())


def _in_one(who: frozenset[str], members: DomainMembers) -> bool:
    """Whether one domain, of those that consist of others, has most of them, and more than chance gave it."""
    seen: dict[str, int] = {}
    for uid in who:
        for path in members.paths(uid):
            seen[path] = seen.get(path, 0) + 1
    return any(
        many * 2 > len(who)
        and members.topology_of(path) in LOCATION_TOPOLOGIES
        and members.children(path)
        and significance(many, len(who), members.size(path) / len(members)) >= _RARE
        for path, many in seen.items()
    )


# Seconds after which all nodes have been heard that are.
_HEARD = 60.0


class SuppressedChecks:
    """held: by check. doubted: since when, by check; those are held soon, unless something explains them."""

    def __init__(
        self, rule: DiagnosisPolicy, voting: VoteIndex, past: Recurrence, second: Callable[[str, str], bool]
    ) -> None:
        self.suppressed: dict[str, SuppressedCheck] = {}
        self.suspected: dict[str, float] = {}
        self._rule = rule
        self._voting = voting
        self._past = past
        self._second = second
        self._crowds: dict[str, UnexplainedFirings] = {}

    def suppression(self, check: str, uid: str) -> SuppressedCheck | None:
        """Why nothing is done for a check on a node; None where something may be."""
        held = self.suppressed.get(check)
        if held is not None and (not held.domain or uid in self._voting.members.nodes(held.domain)):
            return held
        return None

    def restore(self, check: str, domain: str, now: float) -> None:
        """A check that was held before anything was known here; domain: the version on which it was alone."""
        self.suppressed.setdefault(check, SuppressedCheck(check, now, (), 0, 0.0, domain=domain))

    def take_over(self, other: SuppressedChecks) -> None:
        """Go on with what another holds."""
        self.suppressed.update(other.suppressed)

    def update_suspected(
        self, candidates: Collection[Candidate], explained: Callable[[str], Set[str]], now: float
    ) -> None:
        """Which checks are in doubt. candidates: domains that may be to blame; explained: nodes of those that
        are, for a class of faults.
        """
        voting = self._voting
        looked = [
            check
            for check in voting.changed_checks | self.suspected.keys()
            if check in voting.firings and (check not in self.suppressed or self.suppressed[check].domain)
        ]

        def known(check: str) -> set[str]:
            held = self.suppressed.get(check)
            found = set(voting.members.nodes(held.domain)) if held is not None else set()
            return found.union(*(explained(kind) for kind in voting.classes_of(check)))

        self._crowds = suspected_checks(looked, voting, candidates, known, now)
        self.suspected = {check: self.suspected.get(check, now) for check in self._crowds}

    def suppress_settled(self, now: float) -> None:
        """Hold the checks that have been in doubt for long enough."""
        for check, since in list(self.suspected.items()):
            if now - since >= self._rule.settle:
                crowd = self._crowds[check]
                domain = common_version(self._voting.members, crowd.nodes)
                self.suppress(check, crowd.nodes, crowd.window, domain, now, crowd.limit)
                del self.suspected[check]

    def suppress(
        self, check: str, who: Iterable[str], window: float, domain: str, now: float, limit: int = 0
    ) -> None:
        """Hold a check that fires on some nodes. domain: the version on which alone, empty for everywhere."""
        who = sorted(who)
        borne_out = sum(1 for uid in who if self._second(uid, check))
        self.suppressed[check] = SuppressedCheck(
            check=check,
            since=now,
            nodes=tuple(who),
            limit=limit,
            within=window,
            confirmed=borne_out >= max(2, self._rule.second * len(who)),
            domain=domain,
            times=self._past.times(check, now) + 1,
        )
        watch = self._voting.firings.get(check)
        self._voting.withdraw(check, list(watch.latest) if watch is not None and not domain else who)

    def clear(self, check: str, now: float) -> None:
        """A check is believed again."""
        if self.suppressed.pop(check, None) is not None:
            self._past.record_end(check, now)
            self._voting.firings.pop(check, None)

    def clear_recovered(self, now: float) -> None:
        """Believe those again that have been quiet for long enough."""
        for check, one in list(self.suppressed.items()):
            held, watch = one, self._voting.firings.get(check)
            waited = self._past.clearing_time(held.times)
            if not held.nodes and watch is not None and now - held.since >= _HEARD:
                # Whoever shows what is only recalled is whom it is about.
                held = self.suppressed[check] = replace(one, nodes=tuple(sorted(watch.active)))
            if now - held.since < waited:
                continue
            late, still = 0, set[str]()
            if watch is not None:
                late = sum(1 for at in watch.latest.values() if at > now - waited)
                still = watch.active & set(held.nodes)
            if max(late, len(still)) < max(2, len(held.nodes) / 2):
                self.clear(check, now)
