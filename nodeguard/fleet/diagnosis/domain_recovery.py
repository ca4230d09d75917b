"""Recovery of degraded domains: when enough of their nodes last showed the fault, and which parts still do.

Pure. Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from math import ceil

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.fleet_evidence import FleetEvidence
from nodeguard.fleet.diagnosis.results import (
    BEFORE_FIRST_VOTE,
    DegradedDomain,
    fewest_children,
    fewest_nodes,
    nth_largest,
)
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.model.diagnosis import DiagnosisPolicy


class DomainRecovery:
    """What the nodes of degraded domains show: when each last showed a fault class, and which parts stay
    faulty when a domain recovers.
    """

    def __init__(self, rule: DiagnosisPolicy, votes: VoteIndex, evidence: FleetEvidence) -> None:
        self._rule = rule
        self._votes = votes
        self._evidence = evidence
        self._last_shown: dict[str, dict[str, float]] = {}  # by domain and uid

    def take_over(self, other: DomainRecovery) -> None:
        """Continue with the times of another diagnosis."""
        self._last_shown.update(other._last_shown)

    def rename(self, domain: str, path: str) -> None:
        """Record that a degraded domain has another path."""
        self._last_shown[path] = self._last_shown.pop(domain, {})

    def forget(self, domain: str) -> None:
        """Forget a domain that is not degraded any more."""
        self._last_shown.pop(domain, None)

    def last_shown(self, degraded: DegradedDomain, now: float) -> float:
        """Return when enough nodes of a domain last showed a fault class of it, of a parent also in enough of
        its children; minus infinity for never.

        Call it at every evaluation: a fault that ends between two of them was shown at the first. A node
        counts even if it may not vote, for example under a cordon: that does not repair the domain.
        """
        domain = degraded.domain
        last_shown = self._last_shown.setdefault(domain, {})
        votes = self._votes.latest_votes(domain, degraded.fault_classes)
        for shown in (votes, self._evidence.shown_faults(degraded, self._votes, now)):
            for uid, at in shown.items():
                last_shown[uid] = max(at, last_shown.get(uid, at))
        size = max(degraded.size, self._votes.members.size(domain))
        shares = [self._votes.votes_by_class[name].vote_class.share for name in degraded.fault_classes]
        least = min((ceil(fewest_nodes(share, size)) for share in shares), default=len(last_shown) + 1)
        by_nodes = nth_largest(least, last_shown.values())
        children = self._evidence.children_of(domain)
        if not children:
            return by_nodes
        times = [
            max(last_shown[uid] for uid in nodes)
            for child in children
            if (nodes := self._evidence.nodes_of(child) & last_shown.keys())
        ]
        return min(by_nodes, nth_largest(fewest_children(len(children)), times))

    def moved(self, degraded: DegradedDomain, now: float) -> tuple[str, ...]:
        """Return the nodes with other labels since, of those that a domain has, that still show its fault."""
        if not degraded.moved:
            return ()
        shown = self._evidence.shown_faults(degraded, self._votes, now)
        return tuple(uid for uid in degraded.moved if shown.get(uid, -1.0) >= now)

    def faulty_parts(self, degraded: DegradedDomain) -> Iterator[DegradedDomain]:
        """Yield the lowest domains of a parent domain that still show a fault of it that lasts: their nodes
        would not vote again. Older faults of single nodes are not the domain's.
        """
        lasting = tuple(
            name for name in degraded.fault_classes if self._votes.votes_by_class[name].vote_class.lasting
        )
        if not (lasting and self._evidence.children_of(degraded.domain)):
            return
        onsets = self._evidence.onsets(replace(degraded, fault_classes=lasting), self._votes)
        faulty = {uid for uid, at in onsets.items() if at >= degraded.began - BEFORE_FIRST_VOTE}
        share = min(self._votes.votes_by_class[name].vote_class.share for name in lasting)
        for part in self._lowest_parts(degraded.domain):
            nodes = self._evidence.nodes_of(part)
            voters = faulty & nodes
            if len(voters) >= max(self._rule.min_nodes, share * len(nodes)):
                yield self._part(part, degraded, lasting, {uid: onsets[uid] for uid in voters}, faulty)

    def _part(
        self,
        part: str,
        whole: DegradedDomain,
        fault_classes: tuple[str, ...],
        onsets: dict[str, float],
        faulty: Set[str],
    ) -> DegradedDomain:
        """Return a part of a domain as a degraded domain of its own."""
        siblings = self._evidence.children_of(part.rpartition("/")[0]) - {part}
        elsewhere = set[str]().union(*map(self._evidence.nodes_of, siblings)) & faulty
        return DegradedDomain(
            name=part,
            domain=part,
            fault_classes=fault_classes,
            since=whole.since,
            began=min(whole.began, *onsets.values()),
            voters=tuple(sorted(onsets)),
            size=len(self._evidence.nodes_of(part)),
            within=max(onsets.values()) - min(onsets.values()),
            siblings=len(siblings),
            elsewhere=len(elsewhere),
            replaced=(whole.domain, *whole.replaced),
        )

    def _lowest_parts(self, domain: str) -> Iterator[str]:
        children = self._evidence.children_of(domain)
        for child in children:
            yield from self._lowest_parts(child)
        if not children:
            yield domain
