"""The plan loop: one step plans, records what is issued, and returns when to plan again. Pure.

The aggregator, the backtest and the simulation differ in their clock and in how they carry out a plan, not in
these steps.
"""

from __future__ import annotations

from msgspec import Struct

from nodeguard.fleet.next_change import next_change
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.instant import Instant

# Seconds from a due time to the plan for it: sums of floats are not exact, and a plan just before the end of
# a grace period does not see it.
_EPSILON = 0.001


class Step(Struct, frozen=True):
    """A plan, and when the next one is due."""

    plan: Plan
    next_change: float
    """When the next plan may differ without an input, in seconds of the monotonic clock; inf for never."""


class PlanLoop:
    """Makes the plans of one planner."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def step(self, now: Instant, limit: int | None = None, *, is_issued: bool = True) -> Step:
        """Plan for now. The caller carries out the plan, and takes the next step after each input of the
        planner, which are also the results of its writes, or when it is due.

        limit: see Planner.plan. is_issued: whether the caller carries out the plan.
        """
        plan = self.planner.plan(now, limit)
        if is_issued:
            self.planner.record_issued(plan)
        # An issued plan leaves its deferred marks to the next one.
        due = now.mono if is_issued and plan.deferred else next_change(self.planner, now)
        return Step(plan, due + _EPSILON)
