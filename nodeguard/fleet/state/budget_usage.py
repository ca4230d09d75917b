"""The usage of budgets: how much capacity is marked, and how much may be. Pure.

Budgets of nodes count parts of a node (see node_placement.WHOLE); the budget of a check counts nodes and
devices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator

from msgspec import Struct

from nodeguard.fleet.budget_limits import BudgetRefusal, GroupLimit, confirmed_limit, group_limit, whole_nodes
from nodeguard.fleet.policy_rules import check_limit
from nodeguard.fleet.state.node_placement import DOMAIN, FLEET, POOL, WHOLE, NodePlacement, gpu_parts
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.judge.formatting import format_duration
from nodeguard.model.device import Device
from nodeguard.model.mark import Charge, PastCharge
from nodeguard.model.policy import Policy

SUSPECT = "suspect"


class NodeUsage(Struct, frozen=True):
    """The usage of the budgets by one node.

    quarantined: the whole node (None) or devices. suspect: whether the node is marked suspect. free: whether
    an operator keeps all work away anyway. charges: of the node and of its devices. recorded: the checks of
    those that an incident of this node supports. past: released charges that count as recent marks, at most
    one of each check.
    """

    placement: NodePlacement
    quarantined: frozenset[Device | None] = frozenset()
    suspect: bool = False
    charges: tuple[Charge, ...] = ()
    recorded: frozenset[str] = frozenset()
    past: tuple[PastCharge, ...] = ()
    free: bool = False

    @property
    def quarantined_parts(self) -> int:
        """Return how many of its parts are quarantined, at most WHOLE."""
        if None in self.quarantined:
            return WHOLE
        return min(WHOLE, gpu_parts(self.placement) * len(self.quarantined)) if self.quarantined else 0

    @property
    def parts(self) -> int:
        """Return how many of its parts are marked, at most WHOLE."""
        return WHOLE if self.suspect else self.quarantined_parts


class BudgetUsage:
    """The number of nodes and the marked parts of each budget, updated node by node."""

    def __init__(self, policy: Policy, checks: Container[str]) -> None:
        """checks: the checks that exist. The marks of a check that does not, as after a new name, count
        against every check if an incident supports them: a kubelet can write any record.
        """
        self.policy = policy
        self._checks = checks
        self._shares = {pool.name: pool.share or None for pool in policy.pools}
        self._sizes: Counter[str] = Counter()
        self._limits: dict[str, GroupLimit] = {}
        # Marked parts; quarantined parts; parts of suspect nodes. A node that is both quarantined and suspect
        # is in all three, once in each.
        self._used: Counter[str] = Counter()
        self._quarantined: Counter[str] = Counter()
        self._suspects: Counter[str] = Counter()
        # The budgets of checks, by check and `free`: cordoned nodes have budgets of their own.
        self._active: Counter[tuple[str, bool]] = Counter()
        self._recorded: Counter[tuple[str, bool]] = Counter()
        self._new: dict[tuple[str, bool], Counter[float]] = defaultdict(Counter)

    def add_node(self, placement: NodePlacement, by: int = 1) -> None:
        """Add a node to its budgets, or remove it (by -1)."""
        for key in placement.budgets:
            self._sizes[key] += by
        self._limits.clear()

    def size(self, key: str) -> int:
        """Return how many nodes a budget has."""
        return self._sizes[key]

    def charge(self, usage: NodeUsage, by: int = 1) -> None:
        """Charge the budgets with a node's usage, or remove it (by -1)."""
        if usage.parts and not usage.free:
            for key in usage.placement.budgets:
                self._used[key] += by * usage.parts
                self._quarantined[key] += by * usage.quarantined_parts
                if usage.suspect:
                    self._suspects[key] += by * WHOLE
            if usage.suspect:
                self._used[SUSPECT] += by * WHOLE
        for charge in usage.charges:
            check = charge.check, usage.free
            self._active[check] += by
            self._recorded[check] += by * (charge.check in usage.recorded)
            self._count(check, charge.at, by)
        for past in usage.past:
            self._count((past.check, usage.free), past.at, by)

    def _count(self, key: tuple[str, bool], at: float, by: int) -> None:
        times = self._new[key]
        times[at] += by
        if not times[at]:
            del times[at]

    def copy(self) -> BudgetUsage:
        """Return a copy, for the admission of a plan."""
        other = BudgetUsage(self.policy, self._checks)
        other._sizes, other._limits = self._sizes, self._limits
        other._used, other._active = self._used.copy(), self._active.copy()
        other._recorded = self._recorded.copy()
        other._quarantined, other._suspects = self._quarantined.copy(), self._suspects.copy()
        other._new = defaultdict(Counter, {key: times.copy() for key, times in self._new.items()})
        return other

    def refusal(
        self, before: NodeUsage, after: NodeUsage, age: RecordedAge, *, confirmed: bool = False
    ) -> BudgetRefusal | None:
        """Return the budget that refuses a change of a node's usage; None if all allow it. confirmed: see
        nodes_refusal.
        """
        new = after.charges[len(before.charges) :]
        for charge in new:
            if refusal := self.check_refusal(charge.check, age, free=after.free):
                return refusal
        return self.nodes_refusal(before, after, confirmed=confirmed)

    def check_refusal(self, check: str, age: RecordedAge, *, free: bool) -> BudgetRefusal | None:
        """Return the refusal of one more mark of a check; None if it is allowed.

        free: see NodeUsage. These nodes are counted apart: they keep no budget from others, and a false alarm
        marks few of them.
        """
        limit = check_limit(self.policy, check)
        active = self._active[check, free] + sum(
            count
            for (other, is_free), count in self._recorded.items()
            if is_free == free and other != check and other not in self._checks
        )
        name = f"budget of check {check}" + (" for cordoned nodes" if free else "")
        if active >= limit.active:
            return BudgetRefusal(name, active, limit.active, "active mark", check=check)
        # A record on a Node may have any time: one in the far future is not recent.
        recent = sum(count for at, count in self._new[check, free].items() if age(at) < limit.within)
        if recent >= limit.new:
            return BudgetRefusal(
                name, recent, limit.new, "new mark", f"in {format_duration(limit.within)}", check=check
            )
        return None

    def nodes_refusal(
        self, before: NodeUsage, after: NodeUsage, *, confirmed: bool = False
    ) -> BudgetRefusal | None:
        """Return the budget of nodes that refuses a change of a node's usage; None if all allow it.

        A second kind of mark on a marked node needs budget too. Exception: a quarantine of a suspect node,
        where the budget counts both together, as the node is counted already. A quarantine
        is refused if more nodes would then be quarantined than the limit allows.

        confirmed: whether the change is the quarantine of a confirmed fault, see CONFIRMED_SHARE.
        """
        if after.free:
            return None
        suspect = after.suspect and not before.suspect
        limit = self._limit(SUSPECT).nodes
        if suspect and self._used[SUSPECT] + WHOLE > limit * WHOLE:
            return BudgetRefusal("suspect budget", self._used[SUSPECT] / WHOLE, limit, "node", "suspect")
        quarantined = after.quarantined_parts - before.quarantined_parts
        for key in after.placement.budgets:
            limits = self._limit(key)
            if confirmed and key.startswith(DOMAIN):
                limits = confirmed_limit(limits, self._sizes[key])
            if limits.separate:
                refusal = self._separate_refusal(key, limits, quarantined, suspect=suspect)
            else:
                more = after.parts - before.parts
                refusal = self._common_refusal(key, limits, more, quarantined, suspect=suspect)
            if refusal is not None:
                return refusal
        return None

    def _separate_refusal(
        self, key: str, limit: GroupLimit, quarantined: int, *, suspect: bool
    ) -> BudgetRefusal | None:
        used = self._quarantined[key]
        if suspect and self._suspects[key] + WHOLE > limit.suspect * WHOLE:
            return BudgetRefusal(_name(key), self._suspects[key] / WHOLE, limit.suspect, "node", "suspect")
        if quarantined > 0 and used + quarantined > limit.nodes * WHOLE:
            return BudgetRefusal(_name(key), used / WHOLE, limit.nodes, "node", "quarantined")
        return None

    def _common_refusal(
        self, key: str, limit: GroupLimit, more: int, quarantined: int, *, suspect: bool
    ) -> BudgetRefusal | None:
        used = self._used[key]
        # After an uncordon or with a smaller limit, more nodes may be marked than the limit allows.
        if quarantined > 0 and self._quarantined[key] + quarantined > limit.nodes * WHOLE:
            return BudgetRefusal(_name(key), used / WHOLE, limit.nodes, "node", "marked")
        allowed = limit.suspect if suspect else limit.nodes
        # Suspect nodes may not use the reserve, not even one that was quarantined until now.
        if (more <= 0 and not suspect) or used + more <= allowed * WHOLE:
            return None
        reserved = limit.reserve if suspect and used + more <= limit.nodes * WHOLE else 0
        return BudgetRefusal(_name(key), used / WHOLE, limit.nodes, "node", "marked", reserved)

    def rows(self, *, free: bool = False) -> Iterator[tuple[str, float, float, float]]:
        """Yield every budget with usage: its name, the nodes in use, the limit, and the suspect nodes if
        these are counted separately. free: whether of checks those of cordoned nodes, not of the others.
        """
        for key in sorted(key for key, parts in self._used.items() if parts):
            yield self._row(key)
        active = {check: count for (check, is_free), count in self._active.items() if is_free == free}
        for check, count in sorted(active.items()):
            if count:
                yield f"check/{check}", count, check_limit(self.policy, check).active, 0.0

    def rows_of_node(self, placement: NodePlacement) -> Iterator[tuple[str, float, float, float]]:
        """Yield the budgets of a node as `rows` does, those without usage too."""
        for key in placement.budgets:
            yield self._row(key)

    def _row(self, key: str) -> tuple[str, float, float, float]:
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
        return "default pool budget"
    return f"budget of {key.removeprefix(DOMAIN) if key.startswith(DOMAIN) else key.replace('/', ' ', 1)}"
