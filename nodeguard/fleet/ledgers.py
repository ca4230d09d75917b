"""Ledgers: how much is marked, and how much may be. Pure.

Each is kept in parts of a node (see seat.WHOLE), but for those of a check, which count what it took out, a
node or a device each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator

from msgspec import Struct

from nodeguard.fleet.modes import limit_of
from nodeguard.fleet.seat import DOMAIN, FLEET, POOL, WHOLE, Seat
from nodeguard.model.mark import Charge, Mark, Past
from nodeguard.model.policy import Policy

SUSPECT = "suspect"


class Standing(Struct, frozen=True):
    """What one node is charged with. parts: of it that are out by nodeguard, at most WHOLE; free: whether all
    of it is out by a person anyway. charges: of the node and of its devices. past: charges given back.
    """

    seat: Seat
    parts: int
    charges: tuple[Charge, ...]
    past: tuple[Past, ...] = ()
    free: bool = False


class Ledgers:
    """How many nodes there are, and what is charged, by ledger. Both change node by node."""

    def __init__(self, policy: Policy, known: Container[str]) -> None:
        """known: the checks that there are; what stands for another, as of a check that was renamed, counts
        against each of them.
        """
        self.policy = policy
        self._known = known
        self._shares = {pool.name: pool.share for pool in policy.pools}
        self._sizes: Counter[str] = Counter()
        self._caps: dict[str, int] = {}
        self._used: Counter[str] = Counter()
        self._out: Counter[str] = Counter()
        self._new: dict[str, Counter[float]] = defaultdict(Counter)

    def join(self, seat: Seat, by: int = 1) -> None:
        """A node comes to the fleet, or leaves it (by -1)."""
        for key in seat.ledgers:
            self._sizes[key] += by
        self._caps.clear()

    def size(self, key: str) -> int:
        """How many nodes count to a ledger."""
        return self._sizes[key]

    def charge(self, one: Standing, by: int = 1) -> None:
        """A node's charges come to the ledgers, or leave them (by -1)."""
        if one.parts and not one.free:
            for key in one.seat.ledgers:
                self._used[key] += by * one.parts
            if _of_gangs(one.charges):
                self._used[SUSPECT] += by * WHOLE
        for charge in one.charges:
            self._out[charge.check] += by
            self._note(charge.check, charge.at, by)
        for past in one.past:
            self._note(past.check, past.at, by)

    def _note(self, check: str, at: float, by: int) -> None:
        times = self._new[check]
        times[at] += by
        if not times[at]:
            del times[at]

    def copy(self) -> Ledgers:
        """Ledgers of their own, for what is only thought of."""
        other = Ledgers(self.policy, self._known)
        other._sizes, other._caps = self._sizes, self._caps
        other._used, other._out = self._used.copy(), self._out.copy()
        other._new = defaultdict(Counter, {check: times.copy() for check, times in self._new.items()})
        return other

    def refusal(self, before: Standing, after: Standing, now: float) -> str:
        """Why a node may not go from one standing to another; empty where it may. now: seconds since the
        epoch.
        """
        new = after.charges[len(before.charges) :]
        for charge in new:
            if why := self.spent_by(charge.check, now):
                return why
        return "" if after.free else self.full(after.seat, after.parts - before.parts, suspect=_of_gangs(new))

    def spent_by(self, check: str, now: float) -> str:
        """Why a check may not take out one more; empty where it may. now: seconds since the epoch."""
        limit = limit_of(self.policy, check)
        standing = self._out[check] + sum(
            many for other, many in self._out.items() if other != check and other not in self._known
        )
        if standing >= limit.standing:
            return f"check {check} may take out {limit.standing} at a time"
        late = sum(many for at, many in self._new[check].items() if now - at < limit.within)
        if late >= limit.new:
            return f"check {check} may take out {limit.new} in {limit.within:g} s"
        return ""

    def full(self, seat: Seat, more: int, *, suspect: bool) -> str:
        """Why no more parts of a node may be out; empty where they may. suspect: whether all of it is to be
        kept from gangs alone.
        """
        if suspect and self._used[SUSPECT] + WHOLE > self._most(SUSPECT):
            return _full(SUSPECT, self._most(SUSPECT), reserved=False)
        for key in seat.ledgers if more > 0 else ():
            most = self._most(key)
            reserved = suspect and key == FLEET
            if reserved:
                most -= max(WHOLE, int(most * self.policy.budget.reserve))
            if self._used[key] + more > most:
                return _full(key, most, reserved=reserved)
        return ""

    def told(self) -> Iterator[tuple[str, float, float]]:
        """Every ledger that something is charged to: name, nodes charged, nodes that may be."""
        for key in sorted(key for key, parts in self._used.items() if parts):
            yield key, self._used[key] / WHOLE, self._most(key) / WHOLE
        for check in sorted(check for check, many in self._out.items() if many):
            yield f"check/{check}", self._out[check], limit_of(self.policy, check).standing

    def told_of(self, seat: Seat) -> Iterator[tuple[str, float, float]]:
        """The ledgers that a node counts to wherever it is marked, as `told` tells them, empty ones too."""
        for key in seat.ledgers:
            yield key, self._used[key] / WHOLE, self._most(key) / WHOLE

    def _most(self, key: str) -> int:
        """Parts that may be out on a ledger, one whole node at least."""
        most = self._caps.get(key)
        if most is None:
            most = self._caps[key] = max(WHOLE, int(self._share(key) * WHOLE + 1e-6))
        return most

    def _share(self, key: str) -> float:
        """Nodes that may be out on a ledger."""
        budget, sizes = self.policy.budget, self._sizes
        if key == SUSPECT:
            return budget.suspect * sizes[FLEET]
        if key == FLEET:
            return budget.fleet * sizes[FLEET]
        if key.startswith(POOL):
            own = self._shares.get(key.removeprefix(POOL))
            return (budget.pool if own is None else own) * sizes[key]
        return budget.domain * sizes[key]


def _of_gangs(charges: Iterable[Charge]) -> bool:
    """Whether a node is charged with being kept from gangs, as whole nodes alone are."""
    return any(charge.mark == Mark.SUSPECT for charge in charges)


def _full(key: str, most: int, *, reserved: bool) -> str:
    what = key.removeprefix(DOMAIN) if key != POOL else "nodes of no pool"
    rest = ", the rest is reserved for what is fatal" if reserved else ""
    nodes = max(0, most) / WHOLE
    return f"{what}: {nodes:.4g} node{'' if nodes == 1 else 's'} may be out{rest}"
