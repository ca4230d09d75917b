"""Suppressed checks: their marks are withheld or released while they fire on too many nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from math import ceil, inf

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence
from nodeguard.fleet.diagnosis.results import (
    ALL_REPORTED,
    NO_AGENT,
    Recurrence,
    SuppressedCheck,
    clearing_time,
    nth_largest,
    recovering_since,
)
from nodeguard.fleet.diagnosis.suspected_checks import SuspectedChecks
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.wall_clock import CLOCK_TOLERANCE

# Marks are released only if a false alarm is at least this wide: a share of the nodes that may show it, and a
# number of nodes without a mark of it. Fewer nodes may be stolen credentials; the budget of the check limits
# the marks that stay.
_RETRACTION_SHARE = 0.05
_RETRACTION_NODES = 10


class SuppressedChecks:
    """The suppressed checks. suspected: those that are suppressed soon, unless something explains them."""

    def __init__(self, votes: VoteIndex, recurrence: Recurrence, evidence: NodeEvidence) -> None:
        self.suspected = SuspectedChecks(votes, evidence)
        self._votes = votes
        self._recurrence = recurrence
        self._evidence = evidence

    @property
    def suppressed(self) -> dict[str, SuppressedCheck]:
        """Return the suppressions, by check."""
        checks = self._votes.firings.items()
        return {check: firings.suppressed for check, firings in checks if firings.suppressed is not None}

    def suppression(self, check: str, uid: str) -> SuppressedCheck | None:
        """Return the suppression of a check on a node; None if it is not suppressed there."""
        return self._votes.firings_of(check).suppression(uid)

    def is_suspected(self, check: str, uid: str) -> bool:
        """Return whether a check is suspected on a node."""
        return check in self.suspected.since and uid not in self._votes.firings_of(check).kernel_confirmed

    def follow_moves(self, moves: Mapping[str, Collection[str]]) -> None:
        """Follow the nodes that have other domains. A check that is suppressed on a version stays suppressed
        on a node that gets another version while the check fires there. moves: the earlier domains, by uid.
        """
        for check, suppressed in self.suppressed.items():
            firings = self._votes.firings_of(check)
            if not suppressed.recovered:
                left = [uid for uid, before in moves.items() if suppressed.domain in before]
                firings.remaining.update(uid for uid in left if check in self._evidence.shown_checks(uid))
            firings.remaining -= {uid for uid in moves if not self._evidence.exists(uid)}

    def open(self, suppressed: SuppressedCheck) -> None:
        """Record that a check is suppressed, also since before this start, unless it is already."""
        check, firings = suppressed.check, self._votes.firings_of(suppressed.check)
        if firings.suppressed is not None:
            return
        firings.suppressed = suppressed
        if suppressed.recovered:
            # Reports may come before the recorded incidents are read: they voted.
            for uid, at in {**firings.latest, **self._evidence.nodes_showing(check)}.items():
                if firings.confine(uid, at):
                    firings.forget_onset(uid)
        in_scope = filter(firings.is_in_scope, firings.latest)
        self._votes.withdraw(check, {*suppressed.nodes, *firings.remaining, *in_scope})

    def end(self, suppressed: SuppressedCheck, at: float) -> None:
        """Record that a check was suppressed until a time, also before this start: earlier onsets do not
        count where it was. Since its confinement, they count.
        """
        check, firings = suppressed.check, self._votes.firings_of(suppressed.check)
        if firings.suppressed is not None and firings.suppressed.since <= at:
            firings.suppressed, firings.remaining = None, set()
        self._recurrence.record_end(check, suppressed.times, at)
        until = inf if suppressed.confined_at is None else suppressed.confined_at + CLOCK_TOLERANCE
        ended, domain = min(at, until), suppressed.domain
        firings.ended[domain] = max(ended, firings.ended.get(domain, ended))
        self._votes.withdraw(check, firings.forget_onsets(ended, domain))

    def update_retractions(self) -> None:
        """Update whether the suppressed checks retract marks."""
        for check, suppressed in self.suppressed.items():
            if not suppressed.retracts and not suppressed.recovered:
                retracts = self._is_wide(suppressed)
                self._votes.firings_of(check).suppressed = replace(suppressed, retracts=retracts)

    def vote_for_leaves(self, now: float) -> None:
        """Have nodes vote for checks that are suppressed, where one domain has more new onsets than the false
        alarm explains: shared hardware may fail during a false alarm of the same check.
        """
        for check in self.suppressed.keys() & self._votes.new_onsets.keys():
            suppressed = self.suppressed[check]
            if suppressed.recovered or suppressed.domain:
                continue
            firings, since = self._votes.firings[check], suppressed.since
            latest = firings.latest
            recent = [uid for uid in self._votes.new_onsets[check] if latest.get(uid, since) > since]
            rate = len(latest) / max(1.0, now - suppressed.began) / max(1, len(self._votes.members))
            for votes in firings.classes.values():
                for uid in votes.concentrated(recent, latest, since, rate, now):
                    self._votes.vote(uid, check, firings.topologies, latest[uid])

    def suppress_settled(self, now: float) -> Set[str]:
        """Suppress the checks that have been suspected for long enough. Returns them."""
        settled, versions = self.suspected.take_settled(now), self._votes.versions
        for check, unexplained in settled.items():
            nodes = unexplained.nodes
            is_fact = self._evidence.is_fact(check, nodes)
            domain = versions.received(nodes, now) if is_fact else versions.common(nodes)
            self.suppress(check, nodes, unexplained.window, domain, now, unexplained.limit)
        return settled.keys()

    def suppress(
        self, check: str, uids: Iterable[str], window: float, domain: str, now: float, limit: int = 0
    ) -> None:
        """Suppress a check that fires on some nodes. domain: the only version with it, or empty. A check that
        is suppressed on other nodes already is suppressed on all.
        """
        nodes, firings = set(uids), self._votes.firings_of(check)
        began = min((firings.latest[uid] for uid in nodes if uid in firings.latest), default=now)
        times = self._recurrence.times(check, now) + 1
        before = firings.suppressed
        if before is not None:
            scope = firings.scope
            if scope is None or not (domain and scope <= self._votes.members.nodes(domain)):
                domain = ""
            nodes |= firings.remaining
            began = began if before.recovered else min(began, before.began)
            times = before.times
            firings.suppressed, firings.remaining = None, set()
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
        for check, suppressed in self.suppressed.items():
            firings = self._votes.firings_of(check)
            if not suppressed.nodes:
                if not have_reported:
                    continue
                # A restored suppression is about the nodes that show the check now.
                nodes = firings.remaining if suppressed.recovered else self._active(check)
                suppressed = replace(suppressed, nodes=tuple(sorted(nodes)))  # noqa: PLW2901
                firings.suppressed = suppressed
            if suppressed.recovered:
                if have_reported and not self._still_fires(suppressed, firings.remaining, now):
                    self.end(suppressed, now)
                continue
            onset = max(suppressed.since, self._last_onset_of(check, max(2, ceil(suppressed.size / 2))))
            firings.suppressed = replace(suppressed, recovering_since=recovering_since(onset, now))
            # A slow episode may be quiet for a while: it has to be over for as long as it took to be seen.
            if now - onset < max(clearing_time(self._votes.rule, suppressed.times), suppressed.within):
                continue
            active = self._active(check)
            if not self._still_fires(suppressed, active, now):
                self.end(firings.suppressed, now)
            elif firings.only_warns or now - onset >= self._votes.rule.recovery.max:
                self._confine(suppressed, active, now)

    def _last_onset_of(self, check: str, nodes: int) -> float:
        """Return when a check last began to fire on so many nodes without proof; minus infinity for never."""
        firings = self._votes.firings_of(check)
        excluded = self.suspected.caused(check) | firings.kernel_confirmed
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
        remaining = active - firings.kernel_confirmed - self.suspected.caused(check)
        firings.forget_onsets(now)
        firings.kernel_confirmed &= firings.active
        firings.remaining = set(filter(firings.is_in_scope, remaining))
        firings.suppressed = replace(suppressed, confined_at=now, recovering_since=None)

    def _active(self, check: str) -> set[str]:
        """Return the nodes that show a check now, also those that may not vote, such as under a cordon."""
        return {*self._evidence.nodes_showing(check), *self._votes.firings_of(check).active}

    def _is_wide(self, suppressed: SuppressedCheck) -> bool:
        """Return whether a check began to fire on so many nodes that its marks of this episode are released.
        The nodes with these marks do not count: they may be broken.
        """
        check, firings = suppressed.check, self._votes.firings_of(suppressed.check)
        nodes = {uid for uid, at in firings.latest.items() if at >= suppressed.began}
        nodes -= firings.kernel_confirmed | self.suspected.caused(check)
        size = len(self._votes.members) if firings.scope is None else len(firings.scope)
        affected = sum(firings.is_in_scope(uid) and not self._evidence.is_marked(uid, check) for uid in nodes)
        return affected >= max(_RETRACTION_NODES, ceil(_RETRACTION_SHARE * size))
