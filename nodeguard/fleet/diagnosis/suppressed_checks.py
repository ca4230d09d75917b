"""Suppressed checks: their marks are withheld or released while they fire on too many nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from itertools import islice
from math import ceil, inf

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.check_firings import UnexplainedFirings
from nodeguard.fleet.diagnosis.doubtful_domains import doubtful_domains
from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence
from nodeguard.fleet.diagnosis.results import (
    ALL_REPORTED,
    NO_AGENT,
    Candidate,
    DegradedDomain,
    Recurrence,
    SuppressedCheck,
    clearing_time,
    nth_largest,
    recovering_since,
)
from nodeguard.fleet.diagnosis.shared_versions import common_version, received_version
from nodeguard.fleet.diagnosis.suspected_checks import unexplained_firings
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.wall_clock import CLOCK_TOLERANCE

# Marks are released only if a false alarm is at least this wide: a share of the nodes that may show it, and a
# number of nodes without a mark of it. Fewer nodes may be stolen credentials; the budget of the check limits
# the marks that stay.
_RETRACTION_SHARE = 0.05
_RETRACTION_NODES = 10


class SuppressedChecks:
    """The suppressed checks. suspected: since when, and by which firings, by check; suppressed soon, unless
    explained.
    """

    def __init__(self, votes: VoteIndex, evidence: NodeEvidence) -> None:
        self.suppressed: dict[str, SuppressedCheck] = {}
        self.suspected: dict[str, tuple[float, UnexplainedFirings]] = {}
        self._votes = votes
        self._evidence = evidence
        self._recurrence = Recurrence()
        self._explained: dict[str, Set[str]] = {}  # nodes with another cause, by fault class
        # Nodes on which the check still fires, by check: after an episode; and in an episode of a version, so
        # that a node that gets another version stays in it.
        self._remaining: dict[str, set[str]] = {}
        self._nodes: dict[str, Set[str]] = {}  # with the version of a suppression, at the latest evaluation

    def suppression(self, check: str, uid: str) -> SuppressedCheck | None:
        """Return the suppression of a check on a node; None if it is not suppressed there."""
        suppressed = self.suppressed.get(check)
        if suppressed is None or not self._is_in_scope(suppressed, uid):
            return None
        firings = self._votes.firings.get(check)
        return None if firings is not None and uid in firings.kernel_confirmed else suppressed

    def is_suspected(self, check: str, uid: str) -> bool:
        """Return whether a check is suspected on a node."""
        return check in self.suspected and uid not in self._votes.firings_of(check).kernel_confirmed

    def record_cleared(self, uid: str, check: str) -> None:
        """Record that a check does not fire on a node any more."""
        if check in self._remaining:
            self._remaining[check].discard(uid)

    def follow_moves(self) -> None:
        """Follow the nodes that have other domains. A check that is suppressed on a version stays suppressed
        on a node that gets another version while the check fires there.
        """
        for check, suppressed in self.suppressed.items():
            nodes = frozenset(self._evidence.members.nodes(suppressed.domain))
            left, self._nodes[check] = self._nodes[check] - nodes, nodes
            if not suppressed.recovered:
                self._remaining[check] |= {uid for uid in left if check in self._evidence.shown_checks(uid)}
            self._remaining[check] = set(filter(self._evidence.exists, self._remaining[check]))

    def open(self, suppressed: SuppressedCheck) -> None:
        """Record that a check is suppressed, also since before this start, unless it is already."""
        check = suppressed.check
        if self.suppressed.setdefault(check, suppressed) is not suppressed:
            return
        firings = self._votes.firings_of(check)
        self._remaining[check] = set()
        self._nodes[check] = frozenset(self._evidence.members.nodes(suppressed.domain))
        if suppressed.recovered:
            # Reports may come before the recorded incidents are read: they voted.
            for uid, at in {**firings.latest, **self._evidence.onsets(check)}.items():
                if self.confine(uid, check, at):
                    firings.forget_onset(uid)
        nodes = firings.latest.keys() | self._remaining[check]
        self._votes.withdraw(check, [uid for uid in nodes if self.suppression(check, uid) is not None])

    def end(self, suppressed: SuppressedCheck, at: float) -> None:
        """Record that a check was suppressed until a time, also before this start: earlier onsets do not
        count where it was. Since its confinement, they count.
        """
        check, present = suppressed.check, self.suppressed.get(suppressed.check)
        if present is not None and present.since <= at:
            del self.suppressed[check]
            del self._remaining[check]
        self._recurrence.record_end(check, suppressed.times, at)
        until = inf if suppressed.confined_at is None else suppressed.confined_at + CLOCK_TOLERANCE
        self._votes.end_suppression(check, min(at, until), suppressed.domain)

    def confine(self, uid: str, check: str, at: float) -> bool:
        """Add a node to those on which a suppression stays, if the check fires on it since before that was
        confined. at: the onset. Returns whether it is one of them.
        """
        suppressed = self.suppressed.get(check)
        if suppressed is None or suppressed.confined_at is None:
            return False
        if not self._has_version(suppressed, uid) or at > suppressed.confined_at + CLOCK_TOLERANCE:
            return False
        self._remaining[check].add(uid)
        return True

    def update_suspected(
        self,
        candidates: Sequence[Candidate],
        degraded: Collection[DegradedDomain],
        explained: Callable[[str], Set[str]],
        now: float,
    ) -> None:
        """Update the suspected checks. degraded: all such domains; explained: returns the nodes on which a
        fault class has a cause.
        """
        votes, rule = self._votes, self._votes.rule
        self._explained = {name: explained(name) for name in votes.votes_by_class}
        before, self.suspected = self.suspected, {}
        for check, firings in votes.firings.items():
            scope = self._scope(self.suppressed[check]) if check in self.suppressed else frozenset[str]()
            if scope is None or len(firings.latest) < rule.suppression.min_nodes_after_receipt:
                continue
            # A false alarm competes with a doubtful domain again.
            doubtful = doubtful_domains(check, degraded, votes)
            of_doubtful = (votes.members.nodes(candidate.domain) for candidate in doubtful)
            excluded = self._caused(check).difference(*of_doubtful) | scope
            unexplained = unexplained_firings(check, votes, [*candidates, *doubtful], excluded, now)
            if unexplained is None or not self.may_be_false(check, unexplained.nodes, now):
                continue
            onsets = {uid: firings.latest[uid] for uid in unexplained.nodes}
            if not votes.were_judged(onsets, rule.grace_period):
                since = before[check][0] if check in before else now
                self.suspected[check] = since, unexplained

    def may_be_false(self, check: str, uids: Collection[str], now: float) -> bool:
        """Return whether a check may be wrong on nodes: on a fact, only if what reads it is new there."""
        is_fact = self._evidence.is_fact(check, uids)
        return not is_fact or bool(received_version(self._votes, uids, now))

    def update_retractions(self) -> None:
        """Update whether the suppressed checks retract marks."""
        for check, suppressed in self.suppressed.items():
            if not suppressed.retracts and not suppressed.recovered:
                self.suppressed[check] = replace(suppressed, retracts=self._is_wide(suppressed))

    def vote_for_leaves(self, now: float) -> None:
        """Have nodes vote for checks that are suppressed, where one domain has more new onsets than the false
        alarm explains: shared hardware may fail during a false alarm of the same check.
        """
        for check in self.suppressed.keys() & self._votes.new_onsets.keys():
            suppressed = self.suppressed[check]
            if suppressed.recovered or suppressed.domain:
                continue
            latest, since = self._votes.firings[check].latest, suppressed.since
            recent = [uid for uid in self._votes.new_onsets[check] if latest.get(uid, since) > since]
            rate = len(latest) / max(1.0, now - suppressed.began) / max(1, len(self._votes.members))
            for votes in self._votes.classes_of(check).values():
                for uid in votes.concentrated(recent, latest, since, rate, now):
                    self._votes.vote(uid, check, latest[uid])

    def _caused(self, check: str) -> set[str]:
        """Return the nodes on which another cause than a false alarm explains a check: also a degraded domain
        of each of its fault classes that ended after its latest onset there.
        """
        classes, onsets = self._votes.classes_of(check), self._votes.firings_of(check).latest.items()
        explained = set[str]().union(*(self._explained[name] for name in classes))
        if classes and all(votes.ended for votes in classes.values()):
            ended = (uid for uid, at in onsets if all(votes.has_ended(uid, at) for votes in classes.values()))
            explained.update(ended)
        return explained

    def suppress_settled(self, now: float) -> None:
        """Suppress the checks that have been suspected for long enough."""
        for check, (since, unexplained) in list(self.suspected.items()):
            if now - since < self._votes.rule.grace_period:
                continue
            domain = common_version(self._votes, unexplained.nodes)
            is_few = len(unexplained.nodes) < self._votes.rule.suppression.min_nodes
            if is_few or self._evidence.is_fact(check, unexplained.nodes):
                domain = received_version(self._votes, unexplained.nodes, now)
            self.suppress(check, unexplained.nodes, unexplained.window, domain, now, unexplained.limit)
            del self.suspected[check]

    def suppress(
        self, check: str, uids: Iterable[str], window: float, domain: str, now: float, limit: int = 0
    ) -> None:
        """Suppress a check that fires on some nodes. domain: the only version with it, or empty. A check that
        is suppressed on other nodes already is suppressed on all.
        """
        nodes, latest = set(uids), self._votes.firings_of(check).latest
        began = min((latest[uid] for uid in nodes if uid in latest), default=now)
        times = self._recurrence.times(check, now, self._votes.rule.recovery.reset_after) + 1
        before = self.suppressed.pop(check, None)
        if before is not None:
            scope = self._scope(before)
            if scope is None or not (domain and scope <= self._votes.members.nodes(domain)):
                domain = ""
            nodes |= self._remaining.pop(check)
            began = began if before.recovered else min(began, before.began)
            times = before.times
        confirmed = sum(1 for uid in nodes if self._evidence.is_confirmed(uid, check))
        self.open(
            SuppressedCheck(
                check=check,
                since=now,
                began=began,
                nodes=tuple(sorted(nodes)),
                limit=limit,
                within=window,
                confirmed=confirmed >= max(2, self._votes.rule.suppression.confirmed_share * len(nodes)),
                domain=domain,
                times=times,
            )
        )

    def clear_recovered(self, now: float) -> None:
        """End the episodes of checks that began to fire on few nodes for long enough. A check that still
        fires on many of its nodes may spread on: its episode lasts longer, and it stays suppressed there.
        """
        have_reported = now - self._votes.began >= ALL_REPORTED
        for check, suppressed in list(self.suppressed.items()):
            if not suppressed.nodes:
                if not have_reported:
                    continue
                # A restored suppression is about the nodes that show the check now.
                nodes = self._remaining[check] if suppressed.recovered else self._active(check)
                suppressed = replace(suppressed, nodes=tuple(sorted(nodes)))  # noqa: PLW2901
                self.suppressed[check] = suppressed
            if suppressed.recovered:
                if have_reported and not self._still_fires(suppressed, self._remaining[check], now):
                    self.end(suppressed, now)
                continue
            onset = max(suppressed.since, self._last_onset_of(check, max(2, ceil(suppressed.size / 2))))
            self.suppressed[check] = replace(suppressed, recovering_since=recovering_since(onset, now))
            # A slow episode may be quiet for a while: it has to be over for as long as it took to be seen.
            if now - onset < max(clearing_time(self._votes.rule, suppressed.times), suppressed.within):
                continue
            active = self._active(check)
            if not self._still_fires(suppressed, active, now):
                self.end(self.suppressed[check], now)
            elif self._votes.only_warns(check) or now - onset >= self._votes.rule.recovery.max:
                self._confine(suppressed, active, now)

    def _last_onset_of(self, check: str, nodes: int) -> float:
        """Return when a check last began to fire on so many nodes without proof; minus infinity for never."""
        firings = self._votes.firings_of(check)
        excluded = self._caused(check) | firings.kernel_confirmed
        latest = [at for uid, at in firings.latest.items() if uid not in excluded]
        return nth_largest(nodes, latest)

    def _still_fires(self, suppressed: SuppressedCheck, nodes: Set[str], now: float) -> bool:
        """Return whether a suppressed check still fires on half of the nodes of its episode, or on so many
        that they are no single faults. nodes: on which it fires now.
        """
        if not suppressed.recovered:
            nodes = nodes & frozenset(suppressed.nodes)
        least = min(max(2, ceil(suppressed.size / 2)), self._votes.rule.suppression.min_nodes)
        # It may still fire on nodes without a report since the start. After a day, they have no agent.
        may_fire = suppressed.restored_size and now - self._votes.began < NO_AGENT
        unproven = len(self._evidence.stopped.unreported) if may_fire else 0
        return len(nodes) + unproven >= least

    def _confine(self, suppressed: SuppressedCheck, active: set[str], now: float) -> None:
        """Suppress a check only on the nodes on which it still fires: elsewhere its findings count again."""
        check, firings = suppressed.check, self._votes.firings_of(suppressed.check)
        remaining = active - firings.kernel_confirmed - self._caused(check)
        firings.forget_onsets(now)
        firings.kernel_confirmed &= firings.active
        self._remaining[check] = {uid for uid in remaining if self._is_in_scope(suppressed, uid)}
        self.suppressed[check] = replace(suppressed, confined_at=now, recovering_since=None)

    def _active(self, check: str) -> set[str]:
        """Return the nodes that show a check now, also those that may not vote, such as under a cordon."""
        return self._evidence.nodes_showing(check) | self._votes.firings_of(check).active

    def _scope(self, suppressed: SuppressedCheck) -> Set[str] | None:
        """Return the nodes on which a check is suppressed; None for all."""
        remaining = self._remaining[suppressed.check]
        if suppressed.recovered:
            return remaining
        return self._evidence.members.nodes(suppressed.domain) | remaining if suppressed.domain else None

    def _is_in_scope(self, suppressed: SuppressedCheck, uid: str) -> bool:
        """Return whether a node is one of those on which a check is suppressed: see `_scope`."""
        if uid in self._remaining[suppressed.check]:
            return True
        return not suppressed.recovered and self._has_version(suppressed, uid)

    def _has_version(self, suppressed: SuppressedCheck, uid: str) -> bool:
        """Return whether a node has the version with the suppression, if only one has it."""
        return not suppressed.domain or uid in self._evidence.members.nodes(suppressed.domain)

    def _is_wide(self, suppressed: SuppressedCheck) -> bool:
        """Return whether a check began to fire on so many nodes that its marks of this episode are released.
        The nodes with these marks do not count: they may be broken.
        """
        check, scope = suppressed.check, self._scope(suppressed)
        firings = self._votes.firings_of(check)
        nodes = {uid for uid, at in firings.latest.items() if at >= suppressed.began}
        nodes -= firings.kernel_confirmed | self._caused(check)
        size = len(self._votes.members) if scope is None else len(scope)
        least = max(_RETRACTION_NODES, ceil(_RETRACTION_SHARE * size))
        affected = (
            uid
            for uid in nodes
            if self._is_in_scope(suppressed, uid) and not self._evidence.is_marked(uid, check)
        )
        return sum(1 for _ in islice(affected, least)) == least
