"""The action loop: carries the actions on as the fleet half decides, through the store and the runner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Protocol

from msgspec.structs import replace

from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.act.clears import requested_clear
from nodeguard.fleet.act.drain_progress import released_drains
from nodeguard.fleet.act.progress import ActionOutcome, ActionProgress, progress
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.wall_clock import WallClock
from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStore, ActionStoreError
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant

logger = logging.getLogger(__name__)

# The longest time between two turns in seconds, and the time after a change of the store that failed.
_TICK = 10.0
_RETRY = 5.0

# Changes of the store at the same time.
_PARALLEL = 8


class ActionBackend(Protocol):
    """What the loop needs of a backend; see Backend."""

    @property
    def action_store(self) -> ActionStore:
        """Return the store of actions."""

    def missing_inputs(self) -> str:
        """Return the names of inputs that were not read yet; empty for none."""

    def decisions(self) -> Mapping[str, OperatorDecision]:
        """Return operators' decisions, by name of the incident."""

    def open_decisions(self) -> Mapping[str, OperatorDecision]:
        """Return operators' clears of incidents that are recorded as open."""


class DrainRequests(Protocol):
    """What the loop needs of drains; see DrainRunner."""

    def requested(self) -> list[NodeAction]:
        """Return the drains that are requested now."""

    def outcomes(self) -> Mapping[str, ActionOutcome]:
        """Return the outcomes of running drains, by key of the action."""

    def wake(self) -> None:
        """Look at the stored drains now: the store has changed."""


class ActionLoop:
    """Reads requests and stored actions, and stores and starts what follows from them.

    planner: is only read here. drains: requests drains and carries these out; None for
    none. may_write: whether this
    aggregator may change the store: the others only send the instructions of running actions.
    """

    def __init__(
        self,
        backend: ActionBackend,
        outbox: InstructionOutbox,
        planner: Planner,
        drains: DrainRequests | None = None,
        *,
        may_write: Callable[[], bool],
        now: Callable[[], Instant] = current_instant,
    ) -> None:
        self._backend = backend
        self._store = backend.action_store
        self._outbox = outbox
        self._planner = planner
        self._drains = drains
        self._may_write = may_write
        self._now = now
        self._clock = WallClock()
        self._logged = ""
        self._next_change = inf

    async def run(self, wake: asyncio.Event) -> None:
        """Carry actions on until the task is cancelled. wake: is set when something has changed."""
        while True:
            wake.clear()
            try:
                while await self.turn():
                    pass
            except ActionStoreError as error:
                if self._logged != str(error):
                    logger.warning("cannot store an action", extra={"error": str(error)})
                self._logged = str(error)
                await asyncio.sleep(_RETRY)
                continue
            self._logged = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(_TICK, self._next_change - self._now().wall))):
                    await wake.wait()

    async def turn(self) -> bool:
        """Do what is due, once. Returns whether the store was changed, so that more may be due. Raises
        ActionStoreError after it tried each change.
        """
        if self._backend.missing_inputs() or not self._store.is_synced():
            return False
        due = self._progress()
        self._next_change = due.next_change
        self._outbox.run(action for action in due.start if action.kind.is_for_agent)
        if not (self._may_write() and await self._write(due)):
            return False
        if self._drains is not None:
            self._drains.wake()
        return True

    def _progress(self) -> ActionProgress:
        now, actions = self._now(), self._store.actions()
        self._clock.follow(now)
        due = progress(
            actions,
            self._requested(now.wall),
            self._ended(),
            {**self._outbox.outcomes(), **(self._drains.outcomes() if self._drains is not None else {})},
            lambda uid: self._planner.node(uid) is not None,
            now.wall,
            partial(self._clock.age, now=now),
        )
        advancing = {before for before, _ in due.advance}
        others = [action for action in actions if action not in advancing]
        released = released_drains(others, self._planner.state.drain_marks, now.wall)
        return replace(due, advance=(*due.advance, *released))

    def _requested(self, now: float) -> list[NodeAction]:
        requested = self._drains.requested() if self._drains is not None else []
        for name, decision in self._backend.open_decisions().items():
            incident = self._planner.incident(name)
            report = self._planner.reports.get(incident.uid) if incident is not None else None
            action = requested_clear(incident, decision, report, now)
            if action is not None:
                requested.append(action)
        return requested

    def _ended(self) -> set[tuple[str, str]]:
        """Return the incidents that are not open, with their last clears."""
        ended = set()
        for name, decision in self._backend.decisions().items():
            incident = self._planner.incident(name)
            if incident is None or not incident.is_open:
                ended.add((name, decision.clear))
        return ended

    async def _write(self, due: ActionProgress) -> bool:
        """Change the store. A change that fails does not prevent the others."""
        changes = [
            *(self._store.reserve(action) for action in due.reserve),
            *(self._store.advance(before, after) for before, after in due.advance),
            *(self._store.delete(action) for action in due.delete),
        ]
        limit = asyncio.Semaphore(_PARALLEL)
        errors = await asyncio.gather(*(_attempt(change, limit) for change in changes))
        for error in filter(None, errors):
            raise error
        return bool(changes)


async def _attempt(change: Awaitable[None], limit: asyncio.Semaphore) -> ActionStoreError | None:
    """Make a change of the store; return why it failed."""
    async with limit:
        try:
            await change
        except ActionStoreError as error:
            return error
    return None
