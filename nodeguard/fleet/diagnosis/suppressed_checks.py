"""Suppressed checks: their marks are withheld or released while they fire on too many nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.candidates import common_version
from nodeguard.fleet.diagnosis.check_firings import UnexplainedFirings
from nodeguard.fleet.diagnosis.results import Candidate, Recurrence, SuppressedCheck
from nodeguard.fleet.diagnosis.suspected_checks import suspected_checks
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.model.diagnosis import DiagnosisPolicy

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

        self._unexplained = suspected_checks(checks, votes, candidates, excluded, self._rule, now)
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
