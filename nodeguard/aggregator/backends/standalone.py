"""The standalone backend: marks are only advised, and stored with operators' decisions in a file."""

from __future__ import annotations

import asyncio
import logging
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
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.service_state import STANDALONE
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE_ANNOTATION, DesiredNode
from nodeguard.model.node import PREFIX, Node
from nodeguard.model.target import target_kind
from nodeguard.wire.report import Report

logger = logging.getLogger(__name__)

# Seconds between two writes that no caller waits for, between two removals of nodes without reports, and
# without reports until a node is removed.
_WRITE_INTERVAL = 1.0
_FORGET_INTERVAL = 60.0
_FORGET_AFTER = 86_400.0

# The name of an operator who gave none.
_ANONYMOUS = "an operator"

# Seconds for the last write when the aggregator stops.
_CLOSE_TIMEOUT = 5.0


class StandaloneBackend:
    """The backend without Kubernetes. Here the uid of a node is its name.

    path: of the state file, None to store nothing. wake: is called when there is something to plan for. now:
    returns the time. Raises StandaloneStateError. Each incident that begins, changes or ends is logged.
    """

    leader = STANDALONE

    def __init__(
        self,
        path: str | None,
        planner: Planner,
        outbox: InstructionOutbox,
        *,
        wake: Callable[[], object],
        now: Callable[[], Instant] = current_instant,
    ) -> None:
        self._path = path
        self._planner = planner
        self.on_written: Callable[[float], object] = lambda _: None  # nothing is written
        self._outbox = outbox
        self._wake = wake
        self._now = now
        state = read_state(path) if path is not None else StandaloneState()
        self._decisions, self._incidents = state.decisions, state.incidents
        self._advised, self._gpus = state.nodes, state.gpus
        planner.paused = state.pause
        planner.restore_incidents(state.incidents.values())
        for name in self._gpus.keys() | self._advised.keys():
            self._update_node(name)
        for decision in self._decisions.values():
            self._decided(decision)
        self._began: float | None = None
        self._wrote = self._looked = float("-inf")
        self._is_new = True
        self._omitted = 0
        # An operator's decision is written before it takes effect: one decision at a time.
        self._pause_text = state.pause
        self._deciding = asyncio.Lock()
        self._writer = StandaloneStateWriter(partial(_write, path), self._written)
        if path is not None:
            self._begin(path)

    @property
    def actions(self) -> Self:
        """Return this backend: it carries out the actions itself."""
        return self

    def missing_inputs(self) -> str:
        """Return no inputs: there are none to read."""
        return ""

    async def renew_leadership(self, _now: float) -> bool:
        """Return that this aggregator may write: it is the only one."""
        return True

    def node_reported(self, caller: Caller, report: Report) -> None:
        """Add a node at its first report, with the GPUs in its inventory."""
        gpus = sum(1 for slot in report.inventory.components if target_kind(slot) == "gpu")
        if self._gpus.get(caller.node) != gpus and (gpus or caller.node not in self._gpus):
            self._gpus[caller.node] = gpus
            self._is_new = True
            self._update_node(caller.node)

    def policy_changed(self) -> None:
        """Do nothing: no writes wait here."""

    def apply_plan(self, plan: Plan, now: Instant) -> None:
        """Log and store the advised marks and the incidents."""
        self._planner.record_issued(plan)
        for marks in plan.nodes:
            self._advise(marks)
        for incident in plan.incidents:
            before = self._incidents.get(incident.name)
            if before is not None and incident.is_open and not before.is_open:
                self._forget_clear(incident.name)
            if _logged_fields(before) != _logged_fields(incident):
                _log_incident(incident)
            self._is_new = True
        if plan.incidents:
            self._incidents = self._recorded()
        if now.mono - self._looked >= _FORGET_INTERVAL:
            self._looked = now.mono
            self._forget(now.mono)
        if self._is_new and now.mono - self._wrote >= _WRITE_INTERVAL and not self._writer.is_busy:
            self._wrote = now.mono
            self._put()

    def policy_rejected(self, message: str) -> None:
        """Do nothing: the log has the error."""

    async def pause(self, reason: str, by: str) -> str:
        """Advise no new marks. Survives restarts."""
        pause = format_pause_reason(reason, by)
        await self._pause(pause)
        logger.info("new marks are paused", extra={"reason": pause})
        return "paused: no new marks are advised, also after a restart; nodeguard resume ends the pause"

    async def resume(self, by: str) -> str:
        """End a pause."""
        await self._pause("")
        logger.info("new marks are resumed", extra={"by": by or _ANONYMOUS})
        return "resumed: marks are advised again"

    async def unmark(self, by: str) -> str:
        """Pause, and remove all advised marks."""
        await self._pause(format_pause_reason("all marks are removed", by))
        for marks in self._planner.unmark_all().nodes:
            self._advise(marks)
        await self._keep()
        logger.info("all marks are removed", extra={"by": by or _ANONYMOUS})
        return "paused: all marks are removed; nodeguard resume advises them again"

    async def acknowledge(self, name: str, by: str) -> str:
        """Acknowledge an incident."""
        await self._decide(name, acknowledged=by or _ANONYMOUS)
        return f"{name} is acknowledged"

    async def clear(self, name: str, by: str) -> str:
        """Clear an incident."""
        clear = f"{by or _ANONYMOUS} at {datetime.now(UTC).isoformat(timespec='seconds')}"
        self._decided(await self._decide(name, clear=clear))
        incident = self._planner.incident(name)
        if incident is not None and incident.is_open and not incident.node:
            self._planner.clear(incident, self._now())
            self._wake()
        return clear_message(name, of_many=incident is not None and not incident.node)

    async def close(self) -> None:
        """Write the state if it has changed."""
        if self._is_new:
            self._put()
        await self._writer.wait_idle(_CLOSE_TIMEOUT)

    async def wait_idle(self) -> None:
        """Wait until the state is written."""
        await self._writer.wait_idle()

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return operators' decisions and their results, by name of the incident."""
        return {name: self._outbox.with_answer(decision) for name, decision in self._decisions.items()}

    def _update_node(self, name: str) -> None:
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

    def _advise(self, marks: DesiredNode) -> None:
        before = self._advised.pop(marks.name, AdvisedMarks())
        cordoned = before.cordoned if marks.cordon is None else marks.cordon
        taints = tuple(taint for taint in marks.taints if taint.key.startswith(PREFIX))
        advised = AdvisedMarks(taints, marks.state, cordoned)
        if advised != AdvisedMarks():
            self._advised[marks.name] = advised
        self._is_new = True
        self._planner.record_written(marks.uid, marks.state)
        self._update_node(marks.name)

    def _forget(self, now: float) -> None:
        """Remove nodes without a report for a day, except nodes with advised marks."""
        if self._began is None:
            self._began = now
        last = self._planner.last_reports
        for name in [node for node in self._gpus if now - last.get(node, self._began) > _FORGET_AFTER]:
            if name not in self._advised:
                del self._gpus[name]
                self._planner.remove_node(name)
                self._outbox.forget(name)
                self._is_new = True
                logger.info("node without a report for a day is no longer expected", extra={"node": name})

    def _decision(self, incident: str) -> OperatorDecision:
        if self._planner.incident(incident) is None:
            raise OperatorActionError(f"incident {incident} not found: see nodeguard get incidents")
        return self._decisions.get(incident, OperatorDecision(incident))

    async def _decide(self, name: str, **changes: str) -> OperatorDecision:
        """Change the decision about an incident. Returns it once it is durable. Raises DecisionError."""
        async with self._deciding:
            before = self._decision(name)
            decision = replace(before, **changes)
            current = {
                other: earlier
                for other, earlier in self._decisions.items()
                if self._planner.incident(other) is not None
            }
            self._decisions = {**current, name: decision}
            try:
                await self._keep()
            except BaseException:
                others = {other: earlier for other, earlier in self._decisions.items() if other != name}
                self._decisions = {**others, name: before} if before != OperatorDecision(name) else others
                self._is_new = True
                raise
            return decision

    def _forget_clear(self, name: str) -> None:
        """Remove the clear of an incident that begins again: it was for the earlier occurrence."""
        decision = self._decisions.get(name)
        if decision is not None and decision.clear:
            self._decisions = {**self._decisions, name: replace(decision, clear="")}

    def _decided(self, decision: OperatorDecision) -> None:
        incident = self._planner.incident(decision.incident)
        if incident is not None and incident.is_open:
            self._outbox.clear(incident, decision)

    async def _pause(self, reason: str) -> None:
        async with self._deciding:
            before, self._pause_text = self._pause_text, reason
            try:
                await self._keep()
            except BaseException:
                self._pause_text, self._is_new = before, True
                raise
            self._planner.paused = reason
        self._wake()

    async def _keep(self) -> None:
        """Write an operator's decision. Raises OperatorActionError."""
        error = await self._put()
        if error:
            raise OperatorActionError(f"not done, as it cannot be stored: {error}")

    def _begin(self, path: str) -> None:
        """Write the state at the start, synchronously, so that an error is logged at once."""
        try:
            self._written("", write_state(path, self._state()))
            self._is_new = False
        except StandaloneStateError as error:
            self._written(str(error), 0)

    def _put(self) -> asyncio.Future[str]:
        """Write the state. Returns a future with the error, empty for none."""
        self._is_new = False
        return self._writer.put(self._state())

    def _state(self) -> StandaloneState:
        """Return a copy of the state."""
        self._incidents = self._recorded()
        return StandaloneState(
            pause=self._pause_text,
            decisions=self._decisions,
            incidents=self._incidents,
            nodes=dict(self._advised),
            gpus=dict(self._gpus),
        )

    def _recorded(self) -> dict[str, Incident]:
        return {
            name: incident
            for by_name in self._planner.incidents.values()
            for name, incident in by_name.items()
        }

    def _written(self, error: str, omitted: int) -> None:
        """Handle the end of a write. error: empty for none. omitted: incidents that did not fit."""
        if error:
            self._is_new = True
            logger.error("cannot store the state", extra={"error": error})
        elif omitted and not self._omitted:
            remedy = "check what reports so many incidents"
            fields = {"not_stored": omitted, "limit_mib": SIZE_LIMIT >> 20, "remedy": remedy}
            logger.warning("the state file has no space for all incidents", extra=fields)
        self._omitted = omitted


def _write(path: str | None, state: StandaloneState) -> int:
    return write_state(path, state) if path is not None else 0


def _log_incident(incident: Incident) -> None:
    """Log an incident that has changed: without Kubernetes the log is the only record of transitions."""
    logger.info(
        "incident changed",
        extra={
            "node": incident.node,
            "incident": incident.name,
            "state": incident.state.value,
            "health": incident.health.value,
            "check": incident.cause,
            "target": incident.target,
            "action": incident.action.value,
            "scope": incident.scope,
            "summary": incident.message,
            "reason": incident.detail,
        },
    )


def _logged_fields(incident: Incident | None) -> tuple[str, ...]:
    """Return the fields of an incident that are logged when they change."""
    return () if incident is None else (incident.state, incident.scope, incident.detail)
