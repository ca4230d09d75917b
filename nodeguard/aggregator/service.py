"""The aggregator's loop: what agents and the world have told becomes a plan, and the plan is carried out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from nodeguard.aggregator.backends.backend import Backend
from nodeguard.aggregator.history.history import HistoryRecorder, NoHistory
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.liveness import MAX_START_WAIT, MIN_REPORTING_SHARE, may_act
from nodeguard.judge.formatting import format_duration
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.instant import Instant

# Seconds between two plans while nothing has changed, at least between two while much does, and between two
# looks for nodes that are to be forgotten.
_TICK = 1.0
_BREATH = 0.005
_FORGET = 60.0

# So many times as long as the latest plan took, agents are heard and writes go on before the next: while a
# thousand nodes are sick a plan takes long, and each mark that is written would call for another.
_SHARE = 2.0


def pause_after(took: float) -> float:
    """Seconds between a plan that took so many and the next: never longer than a tick, for a process may have
    been frozen while it planned.
    """
    return min(_TICK, max(_BREATH, _SHARE * took))


def current_instant() -> Instant:
    """Now, by clocks that go on while a machine sleeps."""
    return Instant(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), "")


class AggregatorService:
    """Plans whenever there is something to plan for, and once a second.

    reload: has the policy read again, if it has changed. took: seconds that the latest plan took; planned:
    when it was made, by the clock of `moment`. acts: whether plans are carried out by this aggregator.
    capacity: how many agents can connect, None for no limit; shortage: why not all can, empty where they can.
    errors: how often no plan came of it, which ends neither the hearing of agents nor the next try. tell:
    takes sentences for the log. history: is told what is seen and planned.
    """

    def __init__(
        self,
        planner: Planner,
        world: Backend,
        hearing: ReportHandler,
        reload: Callable[[Instant], object],
        woken: asyncio.Event,
        tell: Callable[[str], object] = lambda _: None,
        history: HistoryRecorder | None = None,
    ) -> None:
        self.planner = planner
        self.backend = world
        self.started_at = current_instant().mono
        self.planned_at = self.turned_at = self.started_at
        self.plan_seconds = 0.0
        self.plans = self.errors = 0
        self.is_leader = self.is_active = False
        self.capacity: ConnectionCapacity | None = None
        self.capacity_problem = ""
        self._hearing = hearing
        self.refusals = hearing.refusals
        self._reload = reload
        self._woken = woken
        self._tell = tell
        self.history: HistoryRecorder = history or NoHistory()
        self._said = ""
        self._ticked = self._forgot = float("-inf")

    async def run(self) -> None:
        """Plan until cancelled."""
        while True:
            self._woken.clear()
            await self.turn(current_instant())
            await asyncio.sleep(pause_after(self.plan_seconds))
            try:
                async with asyncio.timeout(_TICK):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def turn(self, now: Instant) -> None:
        """Plan once, and have that carried out if this aggregator leads and knows enough."""
        self.turned_at = now.mono
        if now.mono - self._ticked >= _TICK:
            self._ticked = now.mono
            policy = self.planner.policy
            self._reload(now)
            if self.planner.policy is not policy:
                self.backend.policy_changed()
            self.planner.tick(now)
            self._check_capacity()
            self.history.tick(now)
        if now.mono - self._forgot >= _FORGET:
            self._forgot = now.mono
            self._hearing.forget(now.mono)
        self.is_leader = await self.backend.renew_leadership(now.mono)
        self.is_active = self.is_leader and not self.inactive_reason(now)
        # Who leads and knows too little keeps still: what it told now would be told of a part of the fleet.
        if self.backend.missing_inputs() or (self.is_leader and not self.is_active):
            return
        began = time.perf_counter()
        try:
            plan = self.planner.plan(now)
        except Exception as error:  # noqa: BLE001 - what one node says must not keep all from being heard
            self.errors += 1
            self._say(f"error in the planner, please report it: {type(error).__name__}: {error}")
            return
        self._said = ""
        self.plan_seconds = time.perf_counter() - began
        self.planned_at = now.mono
        self.plans += 1
        self.history.plan_made(plan, now, acts=self.is_active)
        if self.is_active:
            self.backend.apply_plan(plan, now)

    def _check_capacity(self) -> None:
        """Log it once where not all expected agents can connect."""
        if self.capacity is None:
            return
        before, self.capacity_problem = (
            self.capacity_problem,
            self.capacity.shortage(self.planner.stale_agents.expected),
        )
        if self.capacity_problem and not before:
            self._tell(self.capacity_problem)

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)

    def inactive_reason(self, now: Instant) -> str:
        """What keeps this aggregator from having anything written, if it leads; empty for nothing."""
        unknown = self.backend.missing_inputs()
        if unknown:
            return f"not known yet: {unknown}"
        silence = self.planner.stale_agents_at(now)
        if may_act(silence, self.started_at, now.mono):
            return ""
        return (
            f"{silence.reported} of {silence.expected} agents have reported: it acts from "
            f"{MIN_REPORTING_SHARE:.0%} on, or {format_duration(MAX_START_WAIT)} after its start"
        )
