"""The store of the standalone backend: keeps its state in memory, and writes it to the state file.

An operator's decision is written before it takes effect; other changes are written within a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

from msgspec.structs import replace

from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.backends.standalone_state import (
    SIZE_LIMIT,
    StandaloneState,
    StandaloneStateError,
    StandaloneStateWriter,
    read_state,
    write_state,
)
from nodeguard.aggregator.fleet_inputs import FleetView
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import FalseAlarm, OperatorDecision

logger = logging.getLogger(__name__)

# Seconds between two writes that no caller waits for.
_WRITE_INTERVAL = 1.0

# Seconds for the last write when the aggregator stops.
_CLOSE_TIMEOUT = 5.0


class StandaloneStore:
    """The state as it was read, and its changes. Raises StandaloneStateError if it cannot be read.

    path: of the file, None to store nothing. fleet: has the incidents, which are stored too. restored: the
    state at the start. pause, decisions: of operators. advised: advised marks by name of the node. gpus:
    number of GPUs of each node. actions: by key. problem: why the latest write failed; empty if it did not.
    """

    def __init__(self, path: str | None, fleet: FleetView) -> None:
        self._fleet = fleet
        self.restored = read_state(path) if path is not None else StandaloneState()
        self.pause = self.restored.pause
        self.decisions = self.restored.decisions
        self.advised = dict(self.restored.nodes)
        self.gpus = dict(self.restored.gpus)
        # By the names that this version gives them: one with another name could never be changed.
        self.actions = {action.key: action for action in self.restored.actions.values()}
        self.problem = ""
        self._began = time.time()
        self._is_changed = True
        self._written_at = float("-inf")
        self._omitted = 0
        # One decision at a time: each is undone if it cannot be stored.
        self._deciding = asyncio.Lock()
        self._path = path
        self._writer = StandaloneStateWriter(partial(_write, path), self._written)

    def begin(self) -> None:
        """Write the state at the start, synchronously, so that an error is logged at once."""
        if self._path is None:
            return
        try:
            self._is_changed = False
            self._written("", write_state(self._path, self._state()))
        except StandaloneStateError as error:
            self._written(str(error), 0)

    def changed(self) -> None:
        """Note that the state has changed and must be written."""
        self._is_changed = True

    def write_if_due(self, now: float) -> None:
        """Write a changed state, unless the latest write is too recent. now: seconds of a monotonic clock."""
        if self._is_changed and now - self._written_at >= _WRITE_INTERVAL and not self._writer.is_busy:
            self._written_at = now
            self._put()

    async def set_pause(self, pause: str) -> None:
        """Store a pause, empty to end it. Raises OperatorActionError."""
        async with self._deciding:
            before, self.pause = self.pause, pause
            try:
                await self.write()
            except BaseException:
                self.pause, self._is_changed = before, True
                raise

    async def decide(self, incident: str, **changes: str | FalseAlarm) -> OperatorDecision:
        """Change the decision about an incident. Returns it once it is stored. Raises OperatorActionError."""
        async with self._deciding:
            if self._fleet.incident(incident) is None:
                raise OperatorActionError(f"incident {incident} not found: see nodeguard get incidents")
            before = self.decisions.get(incident, OperatorDecision(incident))
            decision = replace(before, **changes)
            current = {
                name: earlier
                for name, earlier in self.decisions.items()
                if self._fleet.incident(name) is not None
            }
            self.decisions = {**current, incident: decision}
            try:
                await self.write()
            except BaseException:
                others = {name: earlier for name, earlier in self.decisions.items() if name != incident}
                self.decisions = (
                    {**others, incident: before} if before != OperatorDecision(incident) else others
                )
                self._is_changed = True
                raise
            return decision

    async def set_action(self, key: str, action: NodeAction | None) -> None:
        """Store an action, None to delete it. Raises OperatorActionError."""
        async with self._deciding:
            before = self.actions
            others = {name: other for name, other in before.items() if name != key}
            self.actions = others if action is None else {**others, key: action}
            try:
                await self.write()
            except BaseException:
                self.actions, self._is_changed = before, True
                raise

    def forget_occurrence(self, incident: str) -> None:
        """Remove the clear of an incident that begins again, and that it was a false alarm: these were for
        the earlier occurrence.
        """
        decision = self.decisions.get(incident)
        if decision is not None and (decision.clear or decision.false_alarm):
            self.decisions = {**self.decisions, incident: replace(decision, clear="", false_alarm=None)}

    async def write(self) -> None:
        """Write the state, and wait for it. Raises OperatorActionError."""
        error = await self._put()
        if error:
            raise OperatorActionError(f"not done, as it cannot be stored: {error}")

    async def wait_idle(self) -> None:
        """Wait until the state is written."""
        await self._writer.wait_idle()

    async def close(self) -> None:
        """Write the state if it has changed."""
        if self._is_changed:
            self._put()
        await self._writer.wait_idle(_CLOSE_TIMEOUT)

    def _put(self) -> asyncio.Future[str]:
        """Write the state. Returns a future with the error, empty for none."""
        self._is_changed = False
        return self._writer.put(self._state())

    def _state(self) -> StandaloneState:
        """Return a copy of the state."""
        return StandaloneState(
            pause=self.pause,
            decisions=self.decisions,
            incidents={incident.name: incident for incident in self._fleet.all_incidents()},
            nodes=dict(self.advised),
            gpus=dict(self.gpus),
            actions=self.actions,
            led=(self._began, time.time()),
        )

    def _written(self, error: str, omitted: int) -> None:
        """Handle the end of a write. error: empty for none. omitted: incidents that did not fit."""
        self.problem = error
        if error:
            self._is_changed = True
            logger.error("cannot store the state", extra={"error": error})
        elif omitted and not self._omitted:
            remedy = "check what reports so many incidents"
            fields = {"not_stored": omitted, "limit_mib": SIZE_LIMIT >> 20, "remedy": remedy}
            logger.warning("the state file has no space for all incidents", extra=fields)
        self._omitted = omitted


def _write(path: str | None, state: StandaloneState) -> int:
    return write_state(path, state) if path is not None else 0
