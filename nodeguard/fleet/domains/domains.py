"""Domains in the plan: what their Nodes carry, and what that stands in for. No input, output or clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.domains.covering import Cover, Standing, covered
from nodeguard.fleet.domains.incidents import CHECK, of_check, of_domain
from nodeguard.fleet.domains.witness import Witness
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.release import Freed, without
from nodeguard.fleet.seat import Seat
from nodeguard.fleet.want import Want
from nodeguard.model.blame import Blame
from nodeguard.model.incident import Incident, State
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause, Degraded
from nodeguard.model.policy import Policy

# Seconds before the first vote in which a node's own mark may have been set for the same cause.
_BEFORE = 600.0


class Domains:
    """What becomes of the domains that are to blame. covers: by domain, as of the latest plan."""

    def __init__(self, witness: Witness) -> None:
        self.covers: dict[str, Cover] = {}
        self._witness = witness
        self._known: set[str] = set()

    def recall(self, holdings: Mapping[str, Holding], told: Iterable[Incident], now: Instant) -> None:
        """Domains that were marked, or told of, before this planner was; checks that were held, too."""
        before = {one.domain: (one.name or one.domain, one.kinds) for _, one in _degraded(holdings)}
        for each in told:
            if each.domain and each.is_open:
                before.setdefault(each.domain, (each.resource, (each.cause,)))
            elif each.is_open and each.resource not in self._known:
                self._known.add(each.resource)
                self._witness.diagnosis.recall_held(each.cause, each.part, now.mono)
        for domain, (name, kinds) in before.items():
            if domain not in self._known:
                self._known.add(domain)
                self._witness.diagnosis.recall(domain, name, kinds, now.mono)

    def incidents(self, rule: Blame, now: Instant) -> Iterator[Incident]:
        """What is to be told of domains, and of checks that are held."""
        for cover in self.covers.values():
            members = self._witness.everyone.size(cover.blamed.domain)
            yield of_domain(cover, members, rule, self._witness.sight, now)
        for held in self._witness.diagnosis.held.values():
            yield of_check(held, self._witness.sight, now)

    def cover(
        self,
        policy: Policy,
        seats: Mapping[str, Seat],
        holdings: Mapping[str, Holding],
        bar: str,
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
        covers = covered(blamed.values(), standing, members, policy, len(seats), bar, now)
        self.covers = {one.blamed.domain: one for one in covers}
        wanted: dict[str, list[Degraded]] = {}
        for cover in covers:
            if cover.mark is not None:
                for uid in everyone.of(cover.mark.domain):
                    wanted.setdefault(uid, []).append(cover.mark)
        changed = {}
        for uid in wanted.keys() | standing.nodes:
            seat, had = seats.get(uid), holdings.get(uid, _NOTHING)
            if seat is None or seat.hold:
                continue
            marks = tuple(sorted(wanted.get(uid, ()), key=lambda one: (one.since, one.domain)))
            if bar and not had.node.degraded:
                continue
            if marks != had.node.degraded:
                changed[uid] = replace(had, node=replace(had.node, degraded=marks))
        return changed

    def superseded(
        self, policy: Policy, holding: Holding, seen: Holding, now: Instant
    ) -> tuple[Holding, tuple[Freed, ...]]:
        """What is left of a node's own marks once its domain's stands on it. seen: what is written there."""
        gone = [
            Freed(cause, "superseded")
            for cause in holding.node.causes
            if self._stands_in(seen, cause.check, cause.since, now)
        ]
        if not gone:
            return holding, ()
        left = tuple(cause for cause in holding.node.causes if all(cause is not one.cause for one in gone))
        record = replace(holding.node, causes=left)
        return without(holding, None, record, policy.soak, now.wall), tuple(gone)

    def folded(self, want: Want, holding: Holding, now: Instant) -> Outcome | None:
        """What becomes of a want that a domain's mark stands in for; None where none does."""
        domain = self._stands_in(holding, want.check, want.since, now)
        return Outcome(want, State.OPEN, f"told of as {domain}, which is degraded") if domain else None

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
