"""Ledgers: how much is marked, and how much may be. Pure.

Each is kept in parts of a node (see seat.WHOLE), but for those of a check, which count what it took out, a
node or a device each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator

from msgspec import Struct

from nodeguard.fleet.budget_limits import BudgetRefusal, GroupLimit, group_limit, whole_nodes
from nodeguard.fleet.policy_rules import check_limit
from nodeguard.fleet.state.node_placement import DOMAIN, FLEET, POOL, WHOLE, NodePlacement, gpu_parts
from nodeguard.judge.formatting import format_duration
from nodeguard.model.mark import Charge, PastCharge
from nodeguard.model.node import Device
from nodeguard.model.policy import Policy

SUSPECT = "suspect"


class NodeUsage(Struct, frozen=True):
    """What one node uses of the budgets.

    quarantined: what of it is quarantined: the whole node (None) or devices. suspect: whether it is marked
    suspect, which only whole nodes are. free: whether all of it is out by a person anyway. charges: of the
    node and of its devices. past: charges given back.
    """

    placement: NodePlacement
    quarantined: frozenset[Device | None] = frozenset()
    suspect: bool = False
    charges: tuple[Charge, ...] = ()
    past: tuple[PastCharge, ...] = ()
    free: bool = False

    @property
    def quarantined_parts(self) -> int:
        """How many of its parts are quarantined, at most WHOLE."""
        if None in self.quarantined:
            return WHOLE
        return min(WHOLE, gpu_parts(self.placement) * len(self.quarantined)) if self.quarantined else 0

    @property
    def parts(self) -> int:
        """How many of its parts any mark keeps work away from, at most WHOLE."""
        return WHOLE if self.suspect else self.quarantined_parts


class BudgetUsage:
    """How many nodes there are, and what is charged, by ledger. Both change node by node."""

    def __init__(self, policy: Policy, known: Container[str]) -> None:
        """known: the checks that there are; what stands for another, as of a check that was renamed, counts
        against each of them.
        """
        self.policy = policy
        self._known = known
        self._shares = {pool.name: pool.share for pool in policy.pools}
        self._sizes: Counter[str] = Counter()
        self._limits: dict[str, GroupLimit] = {}
        # Parts that any mark keeps work away from; quarantined parts; parts of suspect nodes. A node that is
        # both quarantined and suspect is in all three, once in each.
        self._used: Counter[str] = Counter()
        self._quarantined: Counter[str] = Counter()
        self._suspects: Counter[str] = Counter()
        self._out: Counter[str] = Counter()
        self._new: dict[str, Counter[float]] = defaultdict(Counter)

    def add_node(self, seat: NodePlacement, by: int = 1) -> None:
        """A node comes to the fleet, or leaves it (by -1)."""
        for key in seat.budgets:
            self._sizes[key] += by
        self._limits.clear()

    def size(self, key: str) -> int:
        """How many nodes count to a ledger."""
        return self._sizes[key]

    def charge(self, one: NodeUsage, by: int = 1) -> None:
        """A node's charges come to the ledgers, or leave them (by -1)."""
        if one.parts and not one.free:
            for key in one.placement.budgets:
                self._used[key] += by * one.parts
                self._quarantined[key] += by * one.quarantined_parts
                if one.suspect:
                    self._suspects[key] += by * WHOLE
            if one.suspect:
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

    def copy(self) -> BudgetUsage:
        """Ledgers of their own, for what is only thought of."""
        other = BudgetUsage(self.policy, self._known)
        other._sizes, other._limits = self._sizes, self._limits
        other._used, other._out = self._used.copy(), self._out.copy()
        other._quarantined, other._suspects = self._quarantined.copy(), self._suspects.copy()
        other._new = defaultdict(Counter, {check: times.copy() for check, times in self._new.items()})
        return other

    def refusal(self, before: NodeUsage, after: NodeUsage, now: float) -> BudgetRefusal | None:
        """Return the budget that forbids a node to go from one standing to another; None where it may. now:
        seconds since the epoch.
        """
        new = after.charges[len(before.charges) :]
        for charge in new:
            if spent := self.check_refusal(charge.check, now):
                return spent
        return self.nodes_refusal(before, after)

    def check_refusal(self, check: str, now: float) -> BudgetRefusal | None:
        """Return why a check may not mark one more; None where it may. now: seconds since the epoch."""
        limit = check_limit(self.policy, check)
        active = self._out[check] + sum(
            many for other, many in self._out.items() if other != check and other not in self._known
        )
        name = f"budget of check {check}"
        if active >= limit.active:
            return BudgetRefusal(name, active, limit.active, "active marks", check=check)
        late = sum(many for at, many in self._new[check].items() if now - at < limit.within)
        if late >= limit.new:
            return BudgetRefusal(
                name, late, limit.new, f"new marks in {format_duration(limit.within)}", check=check
            )
        return None

    def nodes_refusal(self, before: NodeUsage, after: NodeUsage) -> BudgetRefusal | None:
        """Return the budget of nodes that has no room for a node to go from one standing to another; None
        where all have. A mark of another kind on a node that is marked already asks for room, too; but for a
        quarantine where suspect and quarantined nodes are counted together, as there the node has its room.
        """
        if after.free:
            return None
        suspect = after.suspect and not before.suspect
        most = self._limit(SUSPECT).nodes
        if suspect and self._used[SUSPECT] + WHOLE > most * WHOLE:
            return BudgetRefusal("suspect budget", self._used[SUSPECT] / WHOLE, most, "nodes suspect")
        quarantined = after.quarantined_parts - before.quarantined_parts
        for key in after.placement.budgets:
            if self._limit(key).separate:
                refusal = self._full_apart(key, quarantined, suspect=suspect)
            else:
                refusal = self._full_together(key, after.parts - before.parts, suspect=suspect)
            if refusal is not None:
                return refusal
        return None

    def _full_apart(self, key: str, quarantined: int, *, suspect: bool) -> BudgetRefusal | None:
        limit, used = self._limit(key), self._quarantined[key]
        if suspect and self._suspects[key] + WHOLE > limit.suspect * WHOLE:
            return BudgetRefusal(_name(key), self._suspects[key] / WHOLE, limit.suspect, "nodes suspect")
        if quarantined > 0 and used + quarantined > limit.nodes * WHOLE:
            return BudgetRefusal(_name(key), used / WHOLE, limit.nodes, "nodes quarantined")
        return None

    def _full_together(self, key: str, more: int, *, suspect: bool) -> BudgetRefusal | None:
        limit, used = self._limit(key), self._used[key]
        most = limit.suspect if suspect else limit.nodes
        # Suspect nodes may not use the reserve, not even one that was quarantined until now.
        if (more <= 0 and not suspect) or used + more <= most * WHOLE:
            return None
        kept = limit.reserve if suspect and used + more <= limit.nodes * WHOLE else 0
        return BudgetRefusal(_name(key), used / WHOLE, limit.nodes, "nodes marked", kept)

    def rows(self) -> Iterator[tuple[str, float, float, float]]:
        """Yield every budget that something is charged to: name, nodes charged, nodes that may be, and how
        many suspect nodes are counted apart from these.
        """
        for key in sorted(key for key, parts in self._used.items() if parts):
            yield self._told(key)
        for check in sorted(check for check, many in self._out.items() if many):
            yield f"check/{check}", self._out[check], check_limit(self.policy, check).active, 0.0

    def rows_of_node(self, seat: NodePlacement) -> Iterator[tuple[str, float, float, float]]:
        """Yield the budgets that a node counts to wherever it is marked, as `told` does, empty ones too."""
        for key in seat.budgets:
            yield self._told(key)

    def _told(self, key: str) -> tuple[str, float, float, float]:
        limit = self._limit(key)
        if limit.separate:
            return key, self._quarantined[key] / WHOLE, float(limit.nodes), self._suspects[key] / WHOLE
        return key, self._used[key] / WHOLE, float(limit.nodes), 0.0

    def _limit(self, key: str) -> GroupLimit:
        """Return the limit of a budget of nodes."""
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = self._new_limit(key)
        return limit

    def _new_limit(self, key: str) -> GroupLimit:
        budget, size = self.policy.budget, self._sizes[key]
        if key == SUSPECT:
            nodes = whole_nodes(budget.suspect, self._sizes[FLEET])
            return GroupLimit(nodes, nodes)
        if key == FLEET:
            return group_limit(budget.fleet, size, budget.reserve)
        if key.startswith(POOL):
            own = self._shares.get(key.removeprefix(POOL))
            return group_limit(budget.pool if own is None else own, size)
        return group_limit(budget.domain, size)


def _name(key: str) -> str:
    if key == FLEET:
        return "fleet budget"
    if key == POOL:
        return "budget of nodes in no pool"
    return f"budget of {key.removeprefix(DOMAIN) if key.startswith(DOMAIN) else key.replace('/', ' ', 1)}"
