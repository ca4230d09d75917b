"""The service: plans from reports and Nodes when the plan may change, and applies the plan if active."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec.structs import replace

from nodeguard.aggregator.backends.backend import Backend
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.leadership import Candidacy, has_enough_reports, next_candidacy
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.write_obstacle import ReplicaState, may_apply, write_obstacle
from nodeguard.executors.executor import MarkExecutor
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.plan_loop import NO_CHANGE, PlanLoop
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.service_state import Obstacle
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.instant import Instant

logger = logging.getLogger(__name__)

# Seconds between two turns without a change, the minimum between two turns, and between two removals of
# deleted nodes.
_TICK = 1.0
_MIN_PAUSE = 0.005
_FORGET = 60.0

# The pause after a plan, in durations of that plan, so that reports and writes go on: with a thousand
# unhealthy nodes a plan takes long, and each written mark wakes the loop. And its maximum in seconds: the
# reports of a burst that come during a long pause make the next plan longer, and its pause.
_PAUSE_FACTOR = 2.0
_MAX_PAUSE = 0.25

# Nodes with new marks in one plan: as many as the executor may write at once. It writes 50 a second, so that
# two plans a second leave it no gap, and the reports of a burst have the rest of the time.
_NEW_MARKS = 50
_PARTIAL_PAUSE = 0.5


def pause_after(took: float, *, is_partial: bool = False) -> float:
    """Return the seconds between a plan that took `took` seconds and the next.

    is_partial: whether it deferred marks.
    """
    return _PARTIAL_PAUSE if is_partial else min(_MAX_PAUSE, max(_MIN_PAUSE, _PAUSE_FACTOR * took))


class AggregatorService:
    """Takes a turn after each input, and once a second. A turn plans if the plan may have changed.

    reload: reloads the policy file if it has changed. plan_seconds: duration of the last plan; planned_at:
    when the last plan was made, or found to be still right; turned_at: time of the last turn; is_planned:
    whether that turn made a plan. candidacy: state of the leadership rules;
    is_leader: whether this aggregator holds the lease; is_active: whether it applies its plans. capacity: of
    agent connections, None for no limit; capacity_problem: why not all agents can connect, empty if they can;
    listen_problem: why none can, empty if they can.
    errors: failed plans and listeners: the loop goes on. plan_listeners: receive each plan and its time, and
    each second an empty one if the plan did not change.
    history: records the fleet, if set.
    """

    def __init__(
        self,
        planner: Planner,
        inputs: FleetInputs,
        backend: Backend,
        handler: ReportHandler,
        reload: Callable[[Instant], object],
        wake: asyncio.Event,
        history: History | None = None,
    ) -> None:
        self.planner = planner
        self._loop = PlanLoop(planner)
        self.backend = backend
        self._inputs = inputs
        self.started_at = current_instant().mono
        self.planned_at = self.turned_at = self.started_at
        self.plan_seconds = 0.0
        self.plans = self.errors = 0
        self.is_planned = False
        self.is_leader = self.is_active = False
        self.candidacy = Candidacy()
        self._leader, self._leader_since = "", self.started_at
        self.capacity: ConnectionCapacity | None = None
        self.capacity_problem = self.listen_problem = ""
        self.handler = handler
        self.refusals = handler.refusals
        self._reload = reload
        self._wake = wake
        # Whether the latest plan deferred marks.
        self._is_partial = False
        self.plan_listeners: list[Callable[[Plan, Instant], object]] = []
        self.history = history
        self._ticked = self._forgot = float("-inf")

    async def run(self) -> None:
        """Plan until the task is cancelled."""
        while True:
            self._wake.clear()
            await self.turn(current_instant)
            await asyncio.sleep(pause_after(self.plan_seconds, is_partial=self._is_partial))
            try:
                async with asyncio.timeout(_TICK):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def turn(self, clock: Callable[[], Instant]) -> None:
        """Plan if the plan may change, and apply it if this aggregator is active: leads and has enough
        reports. clock: returns the current time.
        """
        now = clock()
        self.turned_at = now.mono
        if now.mono - self._ticked >= _TICK:
            self._ticked = now.mono
            policy = self.planner.policy
            self._reload(now)
            if self.planner.policy is not policy:
                withdraw_writes(self.planner, self.backend)
            self.planner.tick(now)
            self._check_capacity()
            if self.history is not None:
                self.history.tick(now)
        if now.mono - self._forgot >= _FORGET:
            self._forgot = now.mono
            self.handler.forget(now.mono)
        await self._renew_leadership(now)
        # Reports arrive during a renewal: at the time before it, their findings would begin in the future.
        now = clock()
        self.is_active = may_apply(self.replica_state(now), now.mono)
        # A leader with too few reports does not plan: its incidents would cover only a part of the fleet.
        if self.backend.missing_inputs() or (self.is_leader and not self.is_active):
            return
        try:
            plan = self._plan(now)
        except Exception:  # the data of one node must not stop the loop
            self.errors += 1
            logger.exception("internal error in the planner, please report it")
            return
        self._is_partial = plan.deferred > 0
        self.planned_at = now.mono
        if self.history is not None:
            self.history.plan_made(plan, now, acts=self.is_active)
        self._notify_listeners(plan, now)
        if self.is_active:
            self._apply(plan, now)

    def _plan(self, now: Instant) -> Plan:
        """Return the plan for now: an empty one without planning, if that is all that it can be."""
        is_removal = bool(self._inputs.removal_requested_by)
        # Only an active aggregator issues the plan, and not if it removes all marks instead.
        is_issued = self.is_active and not is_removal
        self.is_planned = is_removal or self._loop.is_due(now, is_issued=is_issued)
        if not self.is_planned:
            return NO_CHANGE
        began = time.perf_counter()
        plan = self._loop.step(now, _NEW_MARKS if self.is_active else None, is_issued=is_issued).plan
        self.plan_seconds = time.perf_counter() - began
        self.plans += 1
        return plan

    def _notify_listeners(self, plan: Plan, now: Instant) -> None:
        for listener in self.plan_listeners:
            try:
                listener(plan, now)
            except Exception:  # metrics and notifications must not stop the marks
                self.errors += 1
                logger.exception("internal error in a listener of plans, please report it")

    def _apply(self, plan: Plan, now: Instant) -> None:
        """Apply a plan; if an operator asked to remove all marks, remove them instead of its marks."""
        by = self._inputs.removal_requested_by
        if by:
            self.planner.drop_issued()
            plan = replace(plan, decisions=())
            if not self.backend.remove_marks():
                self._inputs.removal_requested_by = ""
                self.backend.marks_removed(by)
        elif plan.deferred:
            self._wake.set()
        self.backend.desired(plan.decisions)
        self.backend.publish(plan, now)

    def _check_capacity(self) -> None:
        """Log once that not all expected agents can connect."""
        if self.capacity is None:
            return
        before, self.capacity_problem = (
            self.capacity_problem,
            self.capacity.shortage(self.planner.stale_agents.expected),
        )
        if self.capacity_problem and not before:
            logger.error("not all agents can connect", extra={"reason": self.capacity_problem})

    async def _renew_leadership(self, now: Instant) -> None:
        """Take, renew or release the lease, as the leadership rules decide."""
        self.candidacy = next_candidacy(
            self.candidacy,
            has_inputs=not self.backend.missing_inputs(),
            has_reports=has_enough_reports(self.planner.stale_agents),
            is_leader=self.is_leader,
            vacant_since=self.backend.vacant_since(),
            now=now.mono,
        )
        self.is_leader = await self.backend.renew_leadership(now.mono, self.candidacy)
        if self.backend.leader != self._leader:
            self._leader, self._leader_since = self.backend.leader, now.mono

    def obstacle(self, now: Instant) -> Obstacle | None:
        """Return what keeps this aggregator from writing; None if nothing does."""
        return write_obstacle(self.replica_state(now), now.mono)

    def replica_state(self, now: Instant) -> ReplicaState:
        """Return the state of this replica."""
        return ReplicaState(
            started_at=self.started_at,
            agents=self.planner.state.stale_agents(now),
            candidacy=self.candidacy,
            leader=self._leader,
            leader_since=self._leader_since,
            is_leader=self.is_leader,
            missing=self.backend.missing_inputs(),
            lease_problem=self.backend.lease_problem(now.mono),
            write_problem=self.backend.write_problem(),
            listen_problem=self.listen_problem,
        )


def withdraw_writes(planner: Planner, executor: MarkExecutor) -> None:
    """Withdraw the writes that have not begun: after a change of the policy the next plan decides them again.

    One that has begun may still succeed; a policy that pauses does not wait for it.
    """
    pending, is_paused = planner.state.marks.pending_nodes(), planner.policy.pause
    withdrawn = [uid for uid in pending if is_paused or not executor.is_in_flight(uid)]
    for uid in withdrawn:
        planner.state.record_failed(uid)
    executor.withdraw(withdrawn)
