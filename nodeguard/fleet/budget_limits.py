"""Limits of budgets, and how a budget refuses a mark. Pure.

The planner enforces these limits and `nodeguard policy check` prints them.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.policy import Budget

# A share times a number of nodes may be slightly below the exact whole number: floating-point error.
_ROUNDING_ERROR = 1e-9


class GroupLimit(Struct, frozen=True):
    """The limit of a group of nodes: the fleet, a pool or a failure domain.

    nodes: how many may be marked at a time. suspect: how many of these may be suspect. separate: whether
    suspect and quarantined nodes are counted separately, each against its own limit.
    """

    nodes: int
    suspect: int
    separate: bool = False

    @property
    def reserve(self) -> int:
        """How many nodes are kept for quarantine: suspect marks cannot use them."""
        return self.nodes if self.separate else self.nodes - self.suspect


def whole_nodes(share: float, size: int) -> int:
    """Return how many of `size` nodes a share allows: a whole number, at least 1."""
    return max(1, int(share * size + _ROUNDING_ERROR))


def group_limit(share: float, size: int, reserve: float = 0.0) -> GroupLimit:
    """Return the limit of a group of `size` nodes of which a share may be marked.

    reserve: the share of the limit that is kept for quarantine. A limit of 1 node cannot be divided: there
    suspect and quarantined nodes are counted apart, so that a suspect node keeps no fatal one in service.
    """
    nodes = whole_nodes(share, size)
    if reserve >= 1.0:
        return GroupLimit(nodes, 0)
    if nodes == 1:
        return GroupLimit(1, 1, separate=True)
    return GroupLimit(nodes, nodes - min(nodes - 1, ceil(reserve * nodes - _ROUNDING_ERROR)))


# Share of a domain for fatal faults that the kernel log and another source confirm: these are no false alarm.
# Beyond half of a domain, its shared hardware is the likelier cause, and an operator decides.
CONFIRMED_SHARE = 0.5


def confirmed_limit(limit: GroupLimit, size: int) -> GroupLimit:
    """Return the limit of a domain of `size` nodes for the quarantine of a confirmed fault."""
    return replace(limit, nodes=max(limit.nodes, whole_nodes(CONFIRMED_SHARE, size)))


class FleetLimits(Struct, frozen=True):
    """The limits of a whole fleet, in nodes.

    fleet: limit of all marks of single nodes. suspect: how many nodes may be suspect: the smaller of the
    suspect budget and what the reserve leaves. degraded: nodes in degraded domains; first: nodes in a single
    one, while no other is marked.
    """

    fleet: GroupLimit
    suspect: int
    degraded: int
    first: int


def fleet_limits(budget: Budget, size: int) -> FleetLimits:
    """Return the limits that a policy's budget sets in a fleet of `size` nodes."""
    fleet = group_limit(budget.fleet, size, budget.reserve)
    return FleetLimits(
        fleet=fleet,
        suspect=min(fleet.suspect, whole_nodes(budget.suspect, size)),
        degraded=whole_nodes(budget.degraded, size),
        first=whole_nodes(budget.first, size),
    )


class BudgetRefusal(Struct, frozen=True):
    """A budget that has reached its limit, which refuses a mark.

    budget: its display name. used, limit: how much of it is used, and all of it: of `noun`, a singular such
    as `node` or `active mark`, with a `detail` behind it such as `quarantined`. reserved: how many nodes of
    it are reserved for quarantine. check: the check of a check budget; empty for a budget of nodes.
    """

    budget: str
    used: float
    limit: int
    noun: str
    detail: str = ""
    reserved: int = 0
    check: str = ""

    def message(self, *, dry_run: bool = False) -> str:
        """Return the reason in words. dry_run: whether marks that are not set are counted, too."""
        verb = "would reach" if dry_run else "has reached"
        used = f"{self.used:.4g}" if self.used < 10_000 else f"{self.used:.0f}"  # no exponent
        amount = self._counted(self.detail)
        return f"{self.budget} {verb} its limit: {used} of {amount}{self._reserve_note}"

    def limit_message(self) -> str:
        """Return the budget and its limit in words: `fleet budget: 1 node`."""
        return f"{self.budget}: {self.amount}"

    @property
    def amount(self) -> str:
        """Return the limit in words: `1 node`, `3 new marks in 10 min`."""
        return f"{self._counted(self.detail if self.check else '')}{self._reserve_note}"

    def _counted(self, detail: str) -> str:
        noun = self.noun if self.limit == 1 else f"{self.noun}s"
        return f"{self.limit} {noun} {detail}".rstrip()

    @property
    def _reserve_note(self) -> str:
        return f", {self.reserved} kept for quarantine" if self.reserved else ""
