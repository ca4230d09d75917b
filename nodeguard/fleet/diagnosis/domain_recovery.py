"""Recovery of degraded domains: when each of their nodes last showed the fault. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from heapq import nlargest
from math import ceil, inf

from nodeguard.fleet.diagnosis.evidence import Evidence
from nodeguard.fleet.diagnosis.results import DegradedDomain, fewest_nodes
from nodeguard.fleet.diagnosis.vote_index import VoteIndex


class DomainRecovery:
    """The last time at which each node of a degraded domain showed its fault classes."""

    def __init__(self, votes: VoteIndex, evidence: Evidence) -> None:
        self._votes = votes
        self._evidence = evidence
        self._last_shown: dict[str, dict[str, float]] = {}  # by domain and uid

    def take_over(self, other: DomainRecovery) -> None:
        """Continue with the times of another diagnosis."""
        self._last_shown.update(other._last_shown)

    def forget(self, domain: str) -> None:
        """Forget a domain that is not degraded any more."""
        self._last_shown.pop(domain, None)

    def last_shown(self, degraded: DegradedDomain, now: float) -> float:
        """Return when enough nodes of a domain last showed a fault class of it; minus infinity for never.

        Call it at every evaluation: a fault that ends between two of them was shown at the first. A node
        counts even if it may not vote, for example under a cordon: that does not repair the domain.
        """
        last_shown = self._last_shown.setdefault(degraded.domain, {})
        votes = self._votes.latest_votes(degraded.domain, degraded.fault_classes)
        for shown in (votes, self._evidence.shown_faults(degraded, self._votes, now)):
            for uid, at in shown.items():
                last_shown[uid] = max(at, last_shown.get(uid, at))
        size = max(degraded.size, self._votes.members.size(degraded.domain))
        shares = [self._votes.votes_by_class[name].vote_class.share for name in degraded.fault_classes]
        least = min((ceil(fewest_nodes(share, size)) for share in shares), default=len(last_shown) + 1)
        return nlargest(least, last_shown.values())[-1] if least <= len(last_shown) else -inf
