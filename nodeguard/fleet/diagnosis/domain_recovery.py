"""Recovery of degraded domains: when enough of their nodes last showed the fault, and which parts still do.

Pure. Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from math import inf

from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence, ShownFault
from nodeguard.fleet.diagnosis.results import (
    BEFORE_FIRST_VOTE,
    Candidate,
    DegradedDomain,
    fewest_children,
    fewest_nodes,
    most_children,
    nth_largest,
)
from nodeguard.fleet.diagnosis.vote_index import VoteIndex


class DomainRecovery:
    """When each node of a degraded domain last showed a fault, and which parts of it stay faulty."""

    def __init__(self, votes: VoteIndex, evidence: NodeEvidence) -> None:
        self._votes = votes
        self._evidence = evidence
        self._last_shown: dict[str, dict[str, float]] = {}  # by domain and uid

    def forget(self, domain: str) -> None:
        """Forget a domain that is not degraded any more."""
        self._last_shown.pop(domain, None)

    def last_shown(self, degraded: DegradedDomain, now: float) -> float:
        """Return when enough nodes of a domain last showed a fault class of it, of a parent also in enough of
        its children; minus infinity for never.

        Call it every few seconds: a fault that ends between two calls was shown at the first. A node counts
        even if it may not vote, for example under a cordon: that does not repair the domain.
        """
        domain = degraded.domain
        last_shown = self._last_shown.setdefault(domain, {})
        votes = self._votes.latest_votes(domain, degraded.fault_classes)
        nodes = {*self._evidence.members.nodes(domain), *degraded.moved}
        faults = self._evidence.shown_faults(nodes, degraded, self._votes, now)
        for shown in (votes, {uid: _last(shown_faults) for uid, shown_faults in faults.items()}):
            last_shown |= {uid: at for uid, at in shown.items() if at > last_shown.get(uid, -inf)}
        size = max(degraded.size, self._votes.members.size(domain))
        shares = [self._votes.votes_by_class[name].vote_class.share for name in degraded.fault_classes]
        least = min((fewest_nodes(share, size) for share in shares), default=len(last_shown) + 1)
        by_nodes = nth_largest(least, last_shown.values())
        children = self._evidence.members.children(domain)
        if not children:
            return by_nodes
        # A node with another path is still in a part of its own.
        parts = [*map(self._evidence.members.nodes, children), *({uid} for uid in degraded.moved)]
        times = [max(last_shown[uid] for uid in own) for part in parts if (own := part & last_shown.keys())]
        return min(by_nodes, nth_largest(fewest_children(len(children)), times))

    def faulty_nodes(self, uids: Iterable[str], degraded: DegradedDomain, now: float) -> tuple[str, ...]:
        """Return the nodes, of some that exist, that show the fault of a domain now."""
        existing = filter(self._evidence.exists, sorted(uids))
        shown = self._evidence.shown_faults(existing, degraded, self._votes, now)
        return tuple(uid for uid, faults in shown.items() if _last(faults) >= now)

    def faulty_parts(self, degraded: DegradedDomain, now: float) -> Iterator[Candidate]:
        """Yield the parts of a parent domain that still show a fault of it, with the onsets of their nodes,
        which would not vote again. Older faults of single nodes are not the domain's.
        """
        if not (degraded.fault_classes and self._evidence.members.children(degraded.domain)):
            return
        nodes = self._evidence.members.nodes(degraded.domain)
        shown = self._evidence.shown_faults(nodes, degraded, self._votes, now)
        earliest = degraded.began - BEFORE_FIRST_VOTE
        onsets: dict[str, float] = {}
        for uid, faults in shown.items():
            since = [fault.since for fault in faults if fault.last >= now and earliest <= fault.since < inf]
            if since:
                onsets[uid] = min(since)
        shares = (self._votes.votes_by_class[name].vote_class.share for name in degraded.fault_classes)
        for part in self._parts(degraded.domain, onsets.keys(), min(shares)):
            members = self._evidence.members.nodes(part)
            voters = {uid: at for uid, at in onsets.items() if uid in members}
            yield Candidate(degraded.fault_classes[0], part, inf, voters, len(members))

    def _parts(self, domain: str, faulty: Set[str], share: float) -> Iterator[str]:
        """Yield the widest domains below a domain in which enough nodes are faulty, of a parent in most of
        its children.
        """
        members = self._evidence.members
        for part in members.children(domain):
            nodes, children = members.nodes(part), members.children(part)
            affected = sum(not faulty.isdisjoint(members.nodes(child)) for child in children)
            is_whole = affected >= most_children(len(children)) if children else True
            if is_whole and len(nodes & faulty) >= self._votes.rule.fewest_affected(len(nodes), share):
                yield part
            else:
                yield from self._parts(part, faulty, share)


def _last(faults: Iterable[ShownFault]) -> float:
    """Return when a node last showed any of its faults, in seconds of the monotonic clock."""
    return max(fault.last for fault in faults)
