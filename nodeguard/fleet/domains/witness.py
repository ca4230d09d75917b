"""What the diagnosis is told of: votes, from what nodes say or do not say. Pure.

Who is under maintenance, cordoned by a person or unheard so far does not vote.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from nodeguard.fleet.blame.diagnosis import Diagnosis
from nodeguard.fleet.heard import Heard
from nodeguard.fleet.roster import Roster
from nodeguard.fleet.seat import DOMAIN
from nodeguard.fleet.views.members import Members
from nodeguard.fleet.views.versions import versions
from nodeguard.model.blame import SILENT, Blame
from nodeguard.model.finding import Health, Knowledge
from nodeguard.model.incident import Symptom
from nodeguard.model.instant import Instant

# The views in which a node votes that is not heard any more.
_OF_SILENCE = ("power", "fabric")

# Seconds within which what two checks found belongs together.
_TOGETHER = 600.0


class Witness:
    """diagnosis: what is told. everyone: all nodes by domain, those that may not vote, too."""

    def __init__(self, rule: Blame, roster: Roster, heard: Mapping[str, Heard]) -> None:
        self.everyone = Members()
        self.diagnosis = Diagnosis(rule, self.is_borne_out)
        self._roster = roster
        self._heard = heard
        self._fires: dict[str, frozenset[str]] = {}
        self._silent: Set[str] = frozenset()
        self._now = Instant(0.0, 0.0, "")
        self._moves = roster.moves

    def adopt(self, rule: Blame) -> None:
        """Another rule: all is diagnosed anew; what was blamed is blamed, until it is seen to be over."""
        if rule == self.diagnosis.rule:
            return
        before, self.diagnosis = self.diagnosis, Diagnosis(rule, self.is_borne_out)
        for one in before.blamed.values():
            self.diagnosis.recall(one.domain, one.name, one.kinds, self._now.mono)
        for uid in self._roster.seats:
            self.sit(uid)
            self._vote_for_all(uid)

    def sit(self, uid: str) -> None:
        """A node's place, or what people say of it, may have changed."""
        seat = self._roster.seats.get(uid)
        if seat is None:
            self.everyone.remove(uid)
            self.diagnosis.gone(uid, self._now.mono)
            return
        paths = tuple(path.removeprefix(DOMAIN) for path in seat.domains)
        self.everyone.place(uid, paths)
        votes = uid in self._roster.attendance.last and not (seat.out or seat.maintenance)
        one = self._heard.get(uid)
        told = versions(one) if one is not None else ()
        self.diagnosis.place(uid, (*paths, *told) if votes else (), self._now.mono)

    def gone(self, uid: str) -> None:
        """A node that is no more."""
        self.sit(uid)
        self._fires.pop(uid, None)

    def hear(self, uid: str, now: Instant) -> None:
        """A node has spoken, and tells what fires on it now."""
        self._now = now
        one = self._heard.get(uid)
        if one is None or one.late:
            return
        self.sit(uid)
        fires = frozenset(each.check for each in one.findings if each.knowledge == Knowledge.FRESH)
        before = self._fires.get(uid)
        if before is None:
            self._vote_for_all(uid)
        else:
            views = {each.check: each.views for each in one.findings}
            for check in fires - before:
                self.diagnosis.vote(uid, check, views[check], now.mono)
            for check in before - fires:
                self.diagnosis.over(uid, check)
        self._fires[uid] = fires

    def _vote_for_all(self, uid: str) -> None:
        """Votes for what was there before anybody here listened, from when it began."""
        one = self._heard.get(uid)
        if one is None or one.late:
            return
        for each, began in zip(one.findings, one.began, strict=True):
            if each.knowledge == Knowledge.FRESH:
                age = max(0.0, self._now.wall - began)
                self.diagnosis.vote(uid, each.check, each.views, self._now.mono - age)

    def silent(self, silent: Set[str], now: Instant) -> None:
        """These nodes are silent now, and no others are. Who said that it leaves has no vote for that."""
        self._now = now
        if self._roster.moves != self._moves:
            self._moves = self._roster.moves
            for uid in self._roster.seats:
                self.sit(uid)
        if silent is self._silent:
            return
        for uid in silent - self._silent:
            heard = self._heard.get(uid)
            if heard is not None and not heard.leaving:
                self.diagnosis.vote(uid, SILENT, _OF_SILENCE, now.mono)
        for uid in self._silent - silent:
            self.diagnosis.over(uid, SILENT)
        self._silent = silent

    def is_borne_out(self, uid: str, check: str) -> bool:
        """Whether another check, from another source, found something on a node at about the same time; of
        one that is silent, whether its kubelet is, too.
        """
        if check == SILENT:
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

    def sight(self, uid: str, kinds: tuple[str, ...]) -> Symptom | None:
        """What a node shows of some classes of faults, of any where none is named; None for nothing."""
        seat, one = self._roster.seats.get(uid), self._heard.get(uid)
        if seat is None or one is None:
            return None
        for each in one.findings:
            if not kinds or self.diagnosis.fits(each.check, kinds):
                return Symptom(each.check, f"{seat.name}, {each.target}", each.health, each.message)
        return Symptom(SILENT, seat.name, Health.WARNING) if uid in self._silent else None
