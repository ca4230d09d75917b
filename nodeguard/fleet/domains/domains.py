"""Domains in the plan: what their Nodes carry, and what that stands in for. No input, output or clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.domains.covering import Cover, Standing, Terms, covered
from nodeguard.fleet.domains.incidents import CHECK, named, of_check, of_domain
from nodeguard.fleet.domains.witness import Witness
from nodeguard.fleet.heard import Heard
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.incidents import Shared
from nodeguard.fleet.release import Freed, without
from nodeguard.fleet.roster import Roster
from nodeguard.fleet.seat import DOMAIN, Seat
from nodeguard.fleet.want import Want, resource
from nodeguard.model.blame import Blame
from nodeguard.model.incident import Incident, State
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause, Degraded
from nodeguard.model.policy import Policy

# Seconds before the first vote in which a node's own mark may have been set for the same cause.
_BEFORE = 600.0


class Domains:
    """What becomes of the domains that are to blame. covers: by domain, as of the latest plan. epoch:
    rises whenever another thing is blamed or held.
    """

    def __init__(self, witness: Witness) -> None:
        self.covers: dict[str, Cover] = {}
        self.epoch = 0
        self._witness = witness
        self._known: set[str] = set()
        self._shared: dict[str, tuple[Seat, Heard, Shared]] = {}

    def again(self) -> None:
        """Another thing is blamed or held than before."""
        self.epoch += 1
        self._shared.clear()

    def recall(self, holdings: Mapping[str, Holding], told: Iterable[Incident], now: Instant) -> None:
        """Domains that were marked, or told of, before this planner was; checks that were held, too."""
        before = {
            one.domain: (one.name or one.domain, one.kinds, one.since) for _, one in _degraded(holdings)
        }
        for each in told:
            if each.domain and each.is_open:
                before.setdefault(each.domain, (each.resource, (each.cause,), each.since))
            elif each.is_open and each.resource not in self._known:
                self._known.add(each.resource)
                self._witness.diagnosis.recall_held(each.cause, each.part, now.mono)
        for domain, (name, kinds, since) in before.items():
            if domain not in self._known:
                self._known.add(domain)
                began = now.mono - max(0.0, now.wall - since)
                self._witness.diagnosis.recall(domain, name, kinds, began, now.mono)

    def incidents(self, rule: Blame, now: Instant) -> Iterator[Incident]:
        """What is to be told of domains, and of checks that are held."""
        for cover in self.covers.values():
            members = self._witness.everyone.size(cover.blamed.domain)
            yield of_domain(cover, members, rule, self._witness.sight, now)
        for held in self._witness.diagnosis.held.values():
            yield of_check(held, self._witness.sight, now)

    def cover(
        self,
        terms: Terms,
        seats: Mapping[str, Seat],
        holdings: Mapping[str, Holding],
        now: Instant,
    ) -> dict[str, Holding]:
        """What nodes are to hold that is not as it was: all of a domain that is marked, or is no more."""
        blamed = self._witness.diagnosis.blamed
        self._known |= blamed.keys() | {f"{CHECK}{check}" for check in self._witness.diagnosis.held}
        standing = Standing.of(_degraded(holdings))
        if not (blamed or standing.nodes):
            self.covers = {}
            return {}
        everyone = self._witness.everyone
        members = {domain: everyone.of(domain) for domain in blamed}
        already = tuple(one for one in self.covers.values() if one.granted_at)
        covers = covered(blamed.values(), standing, members, terms, now, already)
        self.covers = {one.blamed.domain: one for one in covers}
        wanted: dict[str, list[Degraded]] = {}
        for cover in covers:
            if cover.mark is not None:
                for uid in everyone.of(cover.mark.domain):
                    if cover.grows or cover.mark in holdings.get(uid, _NOTHING).node.degraded:
                        wanted.setdefault(uid, []).append(cover.mark)
        changed = {}
        for uid in wanted.keys() | standing.nodes:
            seat, had = seats.get(uid), holdings.get(uid, _NOTHING)
            if seat is None or seat.hold:
                continue
            marks = tuple(sorted(wanted.get(uid, ()), key=lambda one: (one.since, one.domain)))
            if terms.bar:
                marks = tuple(one for one in marks if one in had.node.degraded)
            if marks != had.node.degraded:
                changed[uid] = replace(had, node=replace(had.node, degraded=marks))
        return changed

    def supersede(
        self, policy: Policy, roster: Roster, holdings: dict[str, Holding], now: Instant
    ) -> list[tuple[str, Freed]]:
        """Take from what nodes hold what the mark of a domain covers, once it is written there. Returns what
        that was, by uid.
        """
        freed: list[tuple[str, Freed]] = []
        for uid, holding in list(holdings.items()) if self.covers else ():
            seat = roster.seats.get(uid)
            if seat is None or seat.hold or not holding.node.causes:
                continue
            seen, told = roster.observed(uid), self._witness.began(uid)
            # By when it began, as what is asked for is: of what the node does not tell, that is not known.
            gone = [
                one
                for one in holding.node.causes
                if (began := told.get((one.check, one.target))) is not None
                and self._stands_in(seen, one.check, began, now)
            ]
            if gone:
                left = tuple(one for one in holding.node.causes if all(one is not other for other in gone))
                record = replace(holding.node, causes=left)
                holdings[uid] = without(holding, None, record, policy.soak, now.wall)
                freed += [(uid, Freed(one, "superseded")) for one in gone]
        return freed

    def asked(
        self, wants: Iterable[Want], holdings: Mapping[str, Holding], now: Instant
    ) -> tuple[list[Want], list[Outcome]]:
        """Wants, but for those that the mark of a domain stands in for, of which it is said what becomes."""
        if not self.covers:
            return list(wants), []
        asked, folded = [], []
        for want in wants:
            domain = self._stands_in(holdings.get(want.uid, _NOTHING), want.check, want.since, now)
            if domain:
                folded.append(Outcome(want, State.OPEN, f"told of as {domain}, which is degraded"))
            else:
                asked.append(want)
        return asked, folded

    def _stands_in(self, holding: Holding, check: str, since: float, now: Instant) -> str:
        """The domain whose mark on a node is for what a check found since a moment; empty for none."""
        for one in holding.node.degraded:
            blamed = self._witness.diagnosis.blamed.get(one.domain)
            if blamed is None or not self._witness.diagnosis.fits(check, blamed.kinds):
                continue
            began = now.wall - (now.mono - blamed.began)
            if blamed.recalled or since >= began - _BEFORE:
                return one.domain
        return ""

    def shared(self, policy: Policy, seat: Seat, heard: Heard, now: Instant) -> Shared:
        """What of a node's findings is told by the incidents of domains and checks."""
        before = self._shared.get(seat.uid)
        if before is not None and before[0] is seat and before[1] is heard:
            return before[2]
        parents: dict[str, set[str]] = {}
        early: dict[str, bool] = {}
        views = {path.removeprefix(DOMAIN).partition("/")[0] for path in seat.domains}
        for one, began in zip(heard.findings, heard.began, strict=True):
            place = resource(one)
            parents.setdefault(place, set()).add(self.told_by(seat.uid, one.check, began, now))
            young = now.wall - began < policy.settle.shared and not views.isdisjoint(one.views)
            early[place] = early.get(place, True) and young
        # What one part shows may be told in several places, or in part: then it is told for itself.
        alone = {place: name for place, (name, *others) in parents.items() if name and not others}
        found = Shared(alone, frozenset(place for place, young in early.items() if young))
        if not found.early:
            # What is early is so no more some time later.
            self._shared[seat.uid] = seat, heard, found
        return found

    def told_by(self, uid: str, check: str, since: float, now: Instant) -> str:
        """Name of the incident that tells of what a check found on a node; empty for none."""
        diagnosis = self._witness.diagnosis
        if diagnosis.holds(check, uid):
            return named(f"{CHECK}{check}")
        for domain, blamed in diagnosis.blamed.items():
            began = now.wall - (now.mono - blamed.began)
            if (
                uid in self._witness.everyone.of(domain)
                and diagnosis.fits(check, blamed.kinds)
                and (blamed.recalled or since >= began - _BEFORE)
            ):
                return named(blamed.name)
        return ""

    def holds(self, cause: Cause, uid: str) -> bool:
        """Whether a mark is to be given back, because its check is held and nothing else bears it out."""
        witness = self._witness
        return witness.diagnosis.holds(cause.check, uid) is not None and not witness.is_borne_out(
            uid, cause.check
        )


def _degraded(holdings: Mapping[str, Holding]) -> Iterator[tuple[str, Degraded]]:
    for uid, holding in holdings.items():
        for one in holding.node.degraded:
            yield uid, one


_NOTHING = Holding()
