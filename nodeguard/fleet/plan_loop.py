"""The plan loop: one step plans, records what is issued, and returns when to plan again. Pure.

The aggregator, the backtest and the simulation differ in their clock and in how they carry out a plan, not in
these steps.
"""

from __future__ import annotations

from msgspec import Struct

from nodeguard.fleet.next_change import changes_each_second, next_change
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.instant import Instant

# Seconds from a due time to the plan for it: sums of floats are not exact, and a plan just before the end of
# a grace period does not see it.
_EPSILON = 0.001

# Seconds after which `is_due` is true in any case: it bounds the effect of a time that `next_change` does not
# know, and costs nothing.
MAX_INTERVAL = 60.0

# The plan where `is_due` is false.
NO_CHANGE = Plan()


class Step(Struct, frozen=True):
    """A plan, and when the next one is due."""

    plan: Plan
    next_change: float
    """When the next plan may differ without an input, in seconds of the monotonic clock; inf for never."""


class PlanLoop:
    """Makes the plans of one planner."""

    def __init__(self, planner: Planner, max_interval: float = MAX_INTERVAL) -> None:
        """max_interval: seconds, see MAX_INTERVAL."""
        self.planner = planner
        self._max_interval = max_interval
        # The inputs and the decisions after the latest plan, and whether only time changes them.
        self._latest: tuple[object, ...] = ()
        self._is_at_rest = False
        self._planned_at = Instant(0.0, 0.0, "")
        self._due = 0.0
        self._was_issued = False

    def step(self, now: Instant, limit: int | None = None, *, is_issued: bool = True) -> Step:
        """Plan for now. The caller carries out the plan, and takes the next step after each input of the
        planner, which are also the results of its writes, or when it is due.

        limit: see Planner.plan. is_issued: whether the caller carries out the plan.
        """
        planner, before = self.planner, self._state()
        self._is_at_rest = False
        plan = planner.plan(now, limit)
        after = self._state()
        # A plan may complete the one before it, as with the grants of a dry run. One that repeats it, and
        # does nothing, is repeated by all later ones until an input, or a time.
        repeats = plan == NO_CHANGE and planner.admissions.is_kept and before == after == self._latest
        self._latest, self._planned_at, self._was_issued = after, now, is_issued
        if is_issued:
            planner.record_issued(plan)
        # An issued plan leaves its deferred marks to the next one.
        due = now.mono if is_issued and plan.deferred else next_change(planner, now)
        if repeats and not changes_each_second(planner):
            self._is_at_rest = True
            self._due = next_change(planner, now, 2.0 * _EPSILON) - _EPSILON
        return Step(plan, due + _EPSILON)

    def is_due(self, now: Instant, *, is_issued: bool = True) -> bool:
        """Return whether a plan for now may differ from the latest one, which was empty if not. The caller
        asks about once a second, after a tick of the planner.
        """
        latest = self._planned_at
        return (
            not self._is_at_rest
            or is_issued != self._was_issued
            or now.mono >= min(self._due, latest.mono + self._max_interval)
            or abs(now.wall_of(latest.mono) - latest.wall) > _EPSILON
            or self._state() != self._latest
        )

    def _state(self) -> tuple[object, ...]:
        planner = self.planner
        return planner.inputs, planner.tracker.decisions, planner.domain_marks.decisions
