"""No Kubernetes: the plan is advice, kept with people's decisions in a file of this aggregator's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Self

from msgspec.structs import replace

from nodeguard.aggregator.backends.operator_actions import (
    OperatorActionError,
    clear_message,
    format_pause_reason,
)
from nodeguard.aggregator.backends.standalone_state import (
    SIZE_LIMIT,
    AdvisedMarks,
    StandaloneState,
    StandaloneStateError,
    StandaloneStateWriter,
    read_state,
    write_state,
)
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.service import current_instant
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.service_state import STANDALONE
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION, DesiredNode
from nodeguard.model.node import PREFIX, Node
from nodeguard.model.target import target_kind
from nodeguard.wire.report import Report

# Seconds between two writes of what nobody waits for, between two looks for nodes that have left, and of
# silence after which a node has.
_WRITE = 1.0
_LOOK = 60.0
_LEFT = 86_400.0

# Seconds for the last write at the end.
_LAST = 5.0


class StandaloneBackend:
    """The world of an aggregator without Kubernetes. Here a node's uid is its name.

    path: of its file, None to remember nothing. news: is called where there is something to plan for.
    happened: is told each incident that begins, goes on otherwise, or ends. tell: takes sentences for the
    log. now: the moment, by the clock of the plans. Raises KeptError.
    """

    leader = STANDALONE

    def __init__(
        self,
        path: str | None,
        planner: Planner,
        outbox: InstructionOutbox,
        *,
        news: Callable[[], object],
        happened: Callable[[Incident], object],
        tell: Callable[[str], object],
        now: Callable[[], Instant] = current_instant,
    ) -> None:
        self._path = path
        self._planner = planner
        self._outbox = outbox
        self._news = news
        self._happened = happened
        self._tell = tell
        self._now = now
        self._said = ""
        kept = read_state(path) if path is not None else StandaloneState()
        self._decisions, self._incidents = kept.decisions, kept.incidents
        self._advised, self._gpus = kept.nodes, kept.gpus
        planner.paused = kept.pause
        planner.restore_incidents(kept.incidents.values())
        for name in self._gpus.keys() | self._advised.keys():
            self._see(name)
        for decision in self._decisions.values():
            self._decided(decision)
        self._began: float | None = None
        self._wrote = self._looked = float("-inf")
        self._is_new = True
        self._left_out = 0
        # What people decided is written before it counts: one decision at a time.
        self._pause_text = kept.pause
        self._deciding = asyncio.Lock()
        self._writer = StandaloneStateWriter(partial(_write, path), self._written)
        if path is not None:
            self._begin(path)

    @property
    def actions(self) -> Self:
        """It carries out itself what people decide."""
        return self

    def missing_inputs(self) -> str:
        """Nothing."""
        return ""

    async def renew_leadership(self, _now: float) -> bool:
        """It always may."""
        return True

    def node_reported(self, caller: Caller, report: Report) -> None:
        """A node is known from its first report on, with the GPUs that it tells of."""
        gpus = sum(1 for slot in report.inventory.components if target_kind(slot) == "gpu")
        if self._gpus.get(caller.node) != gpus and (gpus or caller.node not in self._gpus):
            self._gpus[caller.node] = gpus
            self._is_new = True
            self._see(caller.node)

    def policy_changed(self) -> None:
        """Nothing waits here."""

    def apply_plan(self, plan: Plan, now: Instant) -> None:
        """Tell and remember what is advised."""
        self._planner.record_issued(plan)
        for one in plan.nodes:
            self._advise(one)
        for incident in plan.incidents:
            before = self._incidents.get(incident.name)
            if before is not None and incident.is_open and not before.is_open:
                self._forget_clear(incident.name)
            if _told(before) != _told(incident):
                self._happened(incident)
            self._is_new = True
        if plan.incidents:
            self._incidents = self._recorded()
        if now.mono - self._looked >= _LOOK:
            self._looked = now.mono
            self._forget(now.mono)
        if self._is_new and now.mono - self._wrote >= _WRITE and not self._writer.is_busy:
            self._wrote = now.mono
            self._put()

    def policy_rejected(self, why: str) -> None:
        """The log has it, and there is no other place."""

    async def pause(self, why: str, by: str) -> str:
        """Advise nothing new from now on, durably."""
        said = format_pause_reason(why, by)
        await self._pause(said)
        self._tell(f"nothing new is advised: {said}")
        return "nothing new is advised from now on, through restarts too; nodeguard resume ends it"

    async def resume(self, by: str) -> str:
        """Go on."""
        await self._pause("")
        self._tell(f"resumed by {by or 'somebody'}")
        return "marks are advised again"

    async def unmark(self, by: str) -> str:
        """Take all advice back, and pause before."""
        await self._pause(format_pause_reason("all marks are removed", by))
        for one in self._planner.unmark_all().nodes:
            self._advise(one)
        await self._keep()
        return "paused, and all marks are taken away; nodeguard resume has them advised again"

    async def acknowledge(self, name: str, by: str) -> str:
        """People know of an incident."""
        await self._decide(name, acknowledged=by or "somebody")
        return f"{name} is acknowledged"

    async def clear(self, name: str, by: str) -> str:
        """Ask to clear an incident."""
        said = f"{by or 'somebody'} at {datetime.now(UTC).isoformat(timespec='seconds')}"
        self._decided(await self._decide(name, clear=said))
        incident = self._planner.incident(name)
        if incident is not None and incident.is_open and not incident.node:
            self._planner.clear(incident, self._now())
            self._news()
        return clear_message(name, of_many=incident is not None and not incident.node)

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._is_new:
            self._put()
        await self._writer.wait_idle(_LAST)

    async def wait_idle(self) -> None:
        """Wait until what is being written is."""
        await self._writer.wait_idle()

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return what people decided, by the incident's name, and what became of it."""
        return {name: self._outbox.with_answer(one) for name, one in self._decisions.items()}

    def _see(self, name: str) -> None:
        advised = self._advised.get(name, AdvisedMarks())
        self._planner.update_node(
            Node(
                name,
                name,
                annotations={STATE_ANNOTATION: advised.state} if advised.state else {},
                taints=advised.taints,
                unschedulable=advised.cordoned,
                gpus=self._gpus.get(name, 0),
            )
        )

    def _advise(self, what: DesiredNode) -> None:
        before = self._advised.pop(what.name, AdvisedMarks())
        cordoned = before.cordoned if what.cordon is None else what.cordon
        taints = tuple(one for one in what.taints if one.key.startswith(PREFIX))
        advised = AdvisedMarks(taints, what.state, cordoned)
        if advised != AdvisedMarks():
            self._advised[what.name] = advised
        self._is_new = True
        self._planner.record_written(what.uid, what.state)
        self._see(what.name)

    def _forget(self, now: float) -> None:
        """Forget nodes that have long been silent, but for those of which anything is advised."""
        if self._began is None:
            self._began = now
        last = self._planner.last_reports
        for name in [one for one in self._gpus if now - last.get(one, self._began) > _LEFT]:
            if name not in self._advised:
                del self._gpus[name]
                self._planner.remove_node(name)
                self._outbox.forget(name)
                self._is_new = True
                self._tell(f"{name}: silent for a day, and expected no more")

    def _decision(self, incident: str) -> OperatorDecision:
        if self._planner.incident(incident) is None:
            raise OperatorActionError(f"there is no incident {incident}: see nodeguard get incidents")
        return self._decisions.get(incident, OperatorDecision(incident))

    async def _decide(self, name: str, **changes: str) -> OperatorDecision:
        """Change the decision about an incident. Returns it once it is durable. Raises DecisionError."""
        async with self._deciding:
            before = self._decision(name)
            decision = replace(before, **changes)
            known = {
                name: one for name, one in self._decisions.items() if self._planner.incident(name) is not None
            }
            self._decisions = {**known, name: decision}
            try:
                await self._keep()
            except BaseException:
                others = {other: one for other, one in self._decisions.items() if other != name}
                self._decisions = {**others, name: before} if before != OperatorDecision(name) else others
                self._is_new = True
                raise
            return decision

    def _forget_clear(self, name: str) -> None:
        """Forget the clear of an incident that begins again: people cleared what was over by then."""
        decision = self._decisions.get(name)
        if decision is not None and decision.clear:
            self._decisions = {**self._decisions, name: replace(decision, clear="")}

    def _decided(self, decision: OperatorDecision) -> None:
        incident = self._planner.incident(decision.incident)
        if incident is not None and incident.is_open:
            self._outbox.clear(incident, decision)

    async def _pause(self, why: str) -> None:
        async with self._deciding:
            before, self._pause_text = self._pause_text, why
            try:
                await self._keep()
            except BaseException:
                self._pause_text, self._is_new = before, True
                raise
            self._planner.paused = why
        self._news()

    async def _keep(self) -> None:
        """Write what a person decided. Raises DecisionError."""
        why = await self._put()
        if why:
            raise OperatorActionError(f"this cannot be written down, and is not done: {why}")

    def _begin(self, path: str) -> None:
        """Write the state at the start, where that may wait: a failure is logged at once."""
        try:
            self._written("", write_state(path, self._state()))
            self._is_new = False
        except StandaloneStateError as error:
            self._written(str(error), 0)

    def _put(self) -> asyncio.Future[str]:
        """Have the state written. Returns a future: why that failed, empty where it did not."""
        self._is_new = False
        return self._writer.put(self._state())

    def _state(self) -> StandaloneState:
        """Return the state as it is now: nothing in it changes later."""
        self._incidents = self._recorded()
        return StandaloneState(
            pause=self._pause_text,
            decisions=self._decisions,
            incidents=self._incidents,
            nodes=dict(self._advised),
            gpus=dict(self._gpus),
        )

    def _recorded(self) -> dict[str, Incident]:
        return {name: one for told in self._planner.incidents.values() for name, one in told.items()}

    def _written(self, why: str, left_out: int) -> None:
        """Note the end of a write. why: it failed, empty if it did not. left_out: incidents without room."""
        if why:
            self._is_new = True
            if why != self._said:
                self._tell(f"what is advised is not remembered: {why}")
        elif left_out and not self._left_out:
            self._tell(
                f"{left_out} incidents are not remembered: {SIZE_LIMIT >> 20} MiB have no room for them; see what "
                "reports so many"
            )
        self._said, self._left_out = why, left_out


def _write(path: str | None, kept: StandaloneState) -> int:
    return write_state(path, kept) if path is not None else 0


def _told(one: Incident | None) -> tuple[str, ...]:
    """What of an incident is told anew where it changes."""
    return () if one is None else (one.state, one.scope, one.detail)
