"""Suspected checks: a false alarm explains their findings better than single faults and shared causes.

Pure. Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from math import inf, log

from msgspec import Struct

from bench.evaluation.competing.explanations import (
    MAX_FLEET_SHARE,
    MISLABELLED,
    SUDDEN,
    Candidate,
    densest,
    shown_part,
)
from bench.evaluation.competing.likelihoods import SURE, another, clump, everywhere, fewest_everywhere
from nodeguard.fleet.diagnosis.check_firings import CheckFirings, PriorRate, UnexplainedFirings
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, DiagnosisPolicy

# Seconds within which a check has a false alarm with the probability `suppression.significance`: with the
# default, one in ten thousand days. The probability of one soon after a new version. Assumed.
_FALSE_ALARM_SECONDS = 864.0
_OF_NEW_VERSION = 0.3

# Seconds for which a version is new on a node.
NEW_SECONDS = 14_400.0

# Part of the nodes with a fault that have reported it, from which domains and a false alarm are compared.
_SETTLED = 0.6


class Suspicion(Struct, frozen=True):
    """Whether a check is suspected. firings: that a false alarm explains; None if it is not suspected.
    doubts: whether a false alarm may explain the votes for domains, too.
    """

    firings: UnexplainedFirings | None
    doubts: bool
    value: float = 0.0


class _Explanations(Struct, frozen=True):
    """What may explain the findings of a check in one fault class. windows: seconds; rate: usual votes of one
    node a second, by which the domains have their value; topologies: in which the check votes; candidates,
    possible: domains.
    """

    windows: tuple[float, ...]
    rate: float = 0.0
    topologies: Set[str] = frozenset()
    candidates: tuple[Candidate, ...] = ()
    possible: tuple[Candidate, ...] = ()


def suspicions(
    checks: Iterable[str],
    votes: VoteIndex,
    candidates: Collection[Candidate],
    possible: Mapping[str, tuple[Candidate, ...]],
    explained: Callable[[str], Set[str]],
    rule: DiagnosisPolicy,
    now: float,
) -> dict[str, Suspicion]:
    """Return the checks of which a false alarm may explain the findings.

    candidates: domains that may be degraded; possible: one by fault class that too few nodes speak for until
    now. explained: returns the nodes on which a cause explains a check.
    """
    found = {}
    for check in checks:
        firings, size = votes.firings[check], max(1, len(votes.members))
        before = PriorRate(votes.usual_rate(check) * size, votes.began)
        windows = rule.suppression.windows
        ways = [_Explanations((*windows, *SUDDEN))]
        for name, class_votes in votes.classes_of(check).items():
            topologies = class_votes.vote_rules.keys() & set(LOCATION_TOPOLOGIES)
            if topologies:
                own = tuple(candidate for candidate in candidates if candidate.fault_class == name)
                scales = tuple(dict.fromkeys((*windows, *SUDDEN, *class_votes.vote_class.windows)))
                class_rate = class_votes.usual_rate(now)
                ways.append(_Explanations(scales, class_rate, topologies, own, possible.get(name, ())))
        excluded = set(explained(check))
        # A false alarm has to be better than the explanations of each class.
        best = []
        for way in ways[1:] or ways:
            results = [
                _suspicion(
                    window, onsets, firings.usual_rate(window, before, now) / size, way, votes, rule, now
                )
                for window, onsets in _windows(firings, way.windows, excluded, votes.began, rule, now)
            ]
            some = [item for item in results if item is not None]
            instead = max((item.value for item in some if item.doubts), default=-inf)
            # A false alarm beside domains has to be better than one instead of them in any window.
            best.append(
                max(
                    (item for item in some if item.doubts or item.value >= instead), key=_weight, default=None
                )
            )
        suspected = [item for item in best if item is not None]
        if suspected and len(suspected) == len(best):
            found[check] = min(suspected, key=_weight)
    return found


def _weight(suspicion: Suspicion) -> tuple[bool, bool]:
    return suspicion.firings is not None, suspicion.doubts


def _suspicion(
    window: float,
    onsets: Mapping[str, float],
    rate: float,
    way: _Explanations,
    votes: VoteIndex,
    rule: DiagnosisPolicy,
    now: float,
) -> Suspicion | None:
    """Return whether a false alarm explains the firings of a check on some nodes within a window; None if it
    does not. rate: usual findings of one node a second.
    """
    members, nodes = votes.members, onsets.keys()
    usual = rate * rule.rate_margin * window
    false = _prior(nodes, window, votes, rule, now)
    explained = {uid for candidate in way.candidates for uid in candidate.voters.keys() & nodes}
    rest = nodes - explained
    if len(rest) <= MISLABELLED * len(explained):
        rest = set()
    # The value of one vote at the usual rate of the check, instead of that of the class.
    vote = log(way.rate / (rate * rule.rate_margin)) if way.rate else 0.0
    shown = shown_part(min(onsets.values()), window, now)
    domains = _together(way.candidates, nodes, vote, rule)
    if len(set().union(*(members.nodes(item.domain) for item in way.candidates))) > MAX_FLEET_SHARE * len(
        members
    ):
        domains = -inf
    single = _single(rest, way.topologies, rate * window, members)
    # The best explanation without a false alarm.
    other = max(single, domains + single)
    taken = set().union(*(item.voters for item in way.candidates))
    more = [*way.candidates, *(item for item in way.possible if taken.isdisjoint(item.voters))]
    for domains_too in (way.possible, more):
        apart = set(nodes).difference(*(item.voters for item in domains_too))
        value = _together(domains_too, nodes, vote, rule)
        other = max(other, value + _single(apart, way.topologies, rate * window, members))
    limit = fewest_everywhere(rule.suppression.min_nodes, len(members), round(usual, 9), false, SURE)
    beside = domains + _false_alarm(rest, len(members), usual, false, shown, rule)
    instead = _false_alarm(nodes, len(members), usual, false, shown, rule)
    if beside >= max(instead, other + SURE):
        return Suspicion(UnexplainedFirings(window, limit, frozenset(rest)), doubts=False, value=beside)
    # While more nodes may show it soon, a domain may still turn out to be the better explanation.
    is_settled = domains in (0.0, -inf) or shown >= _SETTLED
    if is_settled and instead >= max(beside, other) + SURE:
        return Suspicion(UnexplainedFirings(window, limit, frozenset(nodes)), doubts=True, value=instead)
    return Suspicion(None, doubts=True, value=instead) if instead > max(beside, other) - SURE else None


def _together(candidates: Sequence[Candidate], nodes: Set[str], vote: float, rule: DiagnosisPolicy) -> float:
    """Return the value of domains that fail together, for the votes of some nodes. vote: see `_part`."""
    value = sum(_part(candidate, nodes, vote) for candidate in candidates)
    return value + sum(another(rule, candidate.window) for candidate in candidates[1:])


def _part(candidate: Candidate, nodes: Set[str], vote: float) -> float:
    """Return the part of the value of a domain that the votes of some nodes have. vote: value of one, in
    addition.
    """
    voters = len(candidate.voters)
    return (candidate.value + voters * vote) * len(candidate.voters.keys() & nodes) / voters


def _prior(nodes: Set[str], window: float, votes: VoteIndex, rule: DiagnosisPolicy, now: float) -> float:
    """Return the probability of a false alarm on some nodes within a window."""
    changed = {uid for (uid, _), at in votes.version_changes.items() if now - at < NEW_SECONDS}
    return (
        _OF_NEW_VERSION
        if len(nodes & changed) * 2 >= len(nodes)
        else rule.suppression.significance / _FALSE_ALARM_SECONDS * window
    )


def _false_alarm(
    nodes: Set[str], members: int, usual: float, prior: float, shown: float, rule: DiagnosisPolicy
) -> float:
    """Return the value of a false alarm on some nodes. usual: of one node; shown: see `shown_part`."""
    if len(nodes) < rule.suppression.min_nodes:
        return -inf
    return everywhere(len(nodes), max(members, len(nodes)), usual, shown, prior)


def _single(uids: Iterable[str], topologies: Set[str], usual: float, members: DomainMembers) -> float:
    """Return the value of single faults on some nodes: many in one leaf are likelier than the same number in
    different ones. usual: of one node within the window.
    """
    counts: Counter[str] = Counter()
    for uid in uids:
        leaves = (path for path in members.paths(uid) if not members.children(path))
        counts[next((path for path in leaves if members.topology_of(path) in topologies), uid)] += 1
    return sum(
        clump(count, usual * max(1, members.size(leaf))) for leaf, count in counts.items() if count > 1
    )


def _windows(
    firings: CheckFirings,
    windows: Iterable[float],
    explained: Set[str],
    began: float,
    rule: DiagnosisPolicy,
    now: float,
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield most nodes on which a check began to fire without an explanation within a window, for each
    window. A fault that the kernel log confirms is no false alarm. began: when the diagnosis started.
    """
    excluded = firings.kernel_confirmed.union(explained)
    # Findings of agents that started with the aggregator seem to begin at the start.
    shortest = rule.suppression.windows[0]
    unexplained = [(uid, at) for uid, at in firings.latest.items() if uid not in excluded]
    if now - began < shortest and sum(1 for uid, _ in unexplained if uid in firings.unobserved) * 2 >= len(
        unexplained
    ):
        unexplained = [(uid, at) for uid, at in unexplained if uid not in firings.unobserved]
    if len(unexplained) < rule.suppression.min_nodes:
        return
    for window in windows:
        # A longer window needs as long a past.
        if now - began < window and window > shortest:
            continue
        nodes = densest(unexplained, window)
        if len(nodes) >= rule.suppression.min_nodes:
            yield window, nodes
