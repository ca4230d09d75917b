"""Recovery of degraded domains: when enough of their nodes last showed the fault, and which parts still do.

Pure. Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from math import ceil, inf

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.fleet_evidence import FleetEvidence
from nodeguard.fleet.diagnosis.results import DegradedDomain, fewest_nodes
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import most_children
from nodeguard.model.diagnosis import DiagnosisPolicy


class DomainRecovery:
    """The last time at which each node of a degraded domain showed its fault classes."""

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
        by_nodes = nlargest(least, last_shown.values())[-1] if least <= len(last_shown) else -inf
        children = self._votes.members.children(domain)
        if not children:
            return by_nodes
        times = [
            max((last_shown.get(uid, -inf) for uid in self._evidence.nodes_of(child)), default=-inf)
            for child in children
        ]
        least_children = fewest_children(len(children))
        by_children = nlargest(least_children, times)[-1] if least_children <= len(times) else -inf
        return min(by_nodes, by_children)

    def faulty_parts(self, degraded: DegradedDomain, now: float) -> Iterator[DegradedDomain]:
        """Yield the lowest domains of a parent domain that still show a fault that lasts, each as a degraded
        domain: their own nodes would not vote again.
        """
        members = self._votes.members
        lasting = tuple(
            name for name in degraded.fault_classes if self._votes.votes_by_class[name].vote_class.lasting
        )
        if not (lasting and members.children(degraded.domain)):
            return
        shown = self._evidence.shown_faults(replace(degraded, fault_classes=lasting), self._votes, now)
        faulty = {uid for uid, at in shown.items() if at >= now}
        share = min(self._votes.votes_by_class[name].vote_class.share for name in lasting)
        for part in self._lowest_parts(degraded.domain):
            nodes = self._evidence.nodes_of(part)
            voters = faulty & nodes
            if len(voters) < max(self._rule.min_nodes, share * len(nodes)):
                continue
            siblings = members.children(members.parent(part)) - {part}
            elsewhere = set[str]().union(*map(self._evidence.nodes_of, siblings)) & faulty
            yield DegradedDomain(
                name=part,
                domain=part,
                fault_classes=lasting,
                since=now,
                began=degraded.began,
                voters=tuple(sorted(voters)),
                size=len(nodes),
                siblings=len(siblings),
                elsewhere=len(elsewhere),
                parts=(degraded.domain, *degraded.parts),
            )

    def _lowest_parts(self, domain: str) -> Iterator[str]:
        children = self._votes.members.children(domain)
        for child in children:
            yield from self._lowest_parts(child)
        if not children:
            yield domain


def fewest_children(children: int) -> int:
    """Return the minimum number of children with the fault that keep a parent domain degraded: half of those
    that make it degraded. The fault of a single child is that child's.
    """
    return max(2, ceil(most_children(children) / 2))
