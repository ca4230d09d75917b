"""What the diagnosis is told of: votes, from what nodes say or do not say. Pure.

Who is under maintenance, cordoned by a person or unheard so far does not vote.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.fleet.state.topology.versions import version_domains
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import Symptom
from nodeguard.model.instant import Instant

# The views in which a node votes that is not heard any more.
_OF_SILENCE = ("power", "fabric")

# Seconds for which something may have been found before it is told for the first time.
_OLD = 900.0

# Seconds within which what two checks found belongs together.
_TOGETHER = 600.0

# Votes of one node at once, and seconds until it may cast one more: no node begins to fail so often for long,
# and each vote is remembered for a day.
MAX_VOTES, VOTE_INTERVAL = 512.0, 30.0


class VoteCollector:
    """diagnosis: what is told. everyone: all nodes by domain, those that may not vote, too."""

    def __init__(self, rule: DiagnosisPolicy, roster: FleetState, heard: Mapping[str, LatestReport]) -> None:
        self.domain_members = DomainMembers()
        self.diagnosis = Diagnosis(rule, self.is_confirmed)
        self._roster = roster
        self._heard = heard
        self._fires: dict[str, Set[str]] = {}
        self._silent: Set[str] = frozenset()
        self._votes: dict[str, tuple[float, float]] = {}
        self._now = Instant(0.0, 0.0, "")
        self._moves = roster.topology_version

    def set_rule(self, rule: DiagnosisPolicy) -> None:
        """Another rule: all is diagnosed anew; what was blamed or held is, until it is seen to be over."""
        before = self.diagnosis
        if replace(rule, enforce=()) == replace(before.rule, enforce=()):
            return
        self.diagnosis = Diagnosis(rule, self.is_confirmed)
        self.diagnosis.take_over(before)
        self._fires.clear()
        self._silent = frozenset()
        for uid in self._roster.placements:
            self.update_node(uid)

    def update_node(self, uid: str) -> None:
        """A node's place, or what people say of it, may have changed."""
        seat = self._roster.placements.get(uid)
        if seat is None:
            self.domain_members.remove(uid)
            self.diagnosis.remove_node(uid, self._now.mono)
            return
        paths = tuple(path.removeprefix(DOMAIN) for path in seat.domains)
        self.domain_members.set_domains(uid, paths)
        known = uid in self._roster.liveness.last_reports or self._is_marked(uid)
        votes = known and not (seat.cordoned_by_user or seat.maintenance)
        one = self._heard.get(uid)
        told = version_domains(one) if one is not None else ()
        voted = bool(self.diagnosis.members.paths(uid))
        self.diagnosis.set_domains(uid, (*paths, *told) if votes else (), self._now.mono)
        if not self.diagnosis.members.paths(uid):
            self._fires.pop(uid, None)
        elif not voted:
            self._vote_for_all(uid)

    def _is_marked(self, uid: str) -> bool:
        """Whether a node carries the mark of a domain, which it is a part of though it was not heard yet."""
        return bool(self._roster.observed_marks(uid).node.degraded)

    def remove_node(self, uid: str) -> None:
        """A node that is no more."""
        self.update_node(uid)
        self._fires.pop(uid, None)
        self._votes.pop(uid, None)

    def record_report(self, uid: str, now: Instant) -> None:
        """A node has spoken, and tells what fires on it now."""
        self._now = now
        one = self._heard.get(uid)
        if one is None or one.late:
            return
        self.update_node(uid)
        if not self.diagnosis.members.paths(uid):
            return
        before = self._fires.get(uid)
        if before is None:
            self._vote_for_all(uid)
            return
        told = {each.check for each in one.findings}
        for check in before - told:
            self.diagnosis.record_cleared(uid, check)
        # What is not known for sure any more is not over for that, and not new when it is known again.
        fires = self._firing(one)
        self._fires[uid] = fires.keys() | (before & told)
        for check in fires.keys() - before:
            views, age = fires[check]
            self._vote(uid, check, views, age if age > _OLD else 0.0)

    def _firing(self, one: LatestReport) -> dict[str, tuple[tuple[str, ...], float]]:
        """What fires for sure, by check: in which views it may be told of, and for how many seconds."""
        found: dict[str, tuple[tuple[str, ...], float]] = {}
        for each, began in zip(one.findings, one.began, strict=True):
            if each.data_status == DataStatus.FRESH:
                age = max(0.0, self._now.wall - began)
                found[each.check] = each.topologies, max(age, found.get(each.check, ((), 0.0))[1])
        return found

    def _vote_for_all(self, uid: str) -> None:
        """Votes for what was there before anybody here listened, from when it began."""
        one = self._heard.get(uid)
        if one is None or one.late:
            return
        fires = self._firing(one)
        for check, (views, age) in fires.items():
            self._vote(uid, check, views, age)
        self._fires[uid] = frozenset(fires)

    def _vote(self, uid: str, check: str, views: tuple[str, ...], age: float) -> None:
        """Have a node vote, unless it has voted too often. age: seconds since the check began to fire."""
        now = self._now.mono
        left, at = self._votes.get(uid, (MAX_VOTES, now))
        left = min(MAX_VOTES, left + max(0.0, now - at) / VOTE_INTERVAL)
        if left >= 1.0:
            left -= 1.0
            self.diagnosis.vote(uid, check, views, now - age)
        self._votes[uid] = left, now

    def onset_times(self, uid: str) -> dict[tuple[str, str], float]:
        """When what a node tells of began, in seconds since the epoch, by check and slot."""
        one = self._heard.get(uid)
        if one is None:
            return {}
        return {(each.check, each.target): at for each, at in zip(one.findings, one.began, strict=True)}

    def update_stale(self, silent: Set[str], now: Instant) -> None:
        """These nodes are silent now, and no others are. Who said that it leaves has no vote for that."""
        self._now = now
        if self._roster.topology_version != self._moves:
            self._moves = self._roster.topology_version
            for uid in self._roster.placements:
                self.update_node(uid)
        if silent is self._silent:
            return
        for uid in silent - self._silent:
            heard = self._heard.get(uid)
            if not heard.leaving if heard is not None else self._is_marked(uid):
                self.diagnosis.vote(uid, STALE_CHECK, _OF_SILENCE, now.mono)
        for uid in self._silent - silent:
            self.diagnosis.record_cleared(uid, STALE_CHECK)
        self._silent = silent

    def is_confirmed(self, uid: str, check: str) -> bool:
        """Whether another check, from another source, found something on a node at about the same time; of
        one that is silent, whether its kubelet is, too.
        """
        if check == STALE_CHECK:
            node = self._roster.nodes.get(uid)
            return node is not None and not node.ready
        one = self._heard.get(uid)
        if one is None:
            return False
        found = list(zip(one.findings, one.began, strict=True))
        its = [(each, began) for each, began in found if each.check == check]
        sources = {sight.source for each, _ in its for sight in each.evidence}
        return any(
            other.check != check
            and any(sight.source not in sources for sight in other.evidence)
            and any(abs(began - since) <= _TOGETHER for _, since in its)
            for other, began in found
        )

    def symptom(self, uid: str, kinds: tuple[str, ...]) -> Symptom | None:
        """What a node shows of some classes of faults, of any where none is named; None for nothing."""
        seat, one = self._roster.placements.get(uid), self._heard.get(uid)
        if seat is None or one is None:
            return None
        for each in one.findings:
            if not kinds or self.diagnosis.has_fault_class(each.check, kinds):
                return Symptom(each.check, f"{seat.name}, {each.target}", each.health, each.message)
        return Symptom(STALE_CHECK, seat.name, Health.WARNING) if uid in self._silent else None
