"""The change feed: wakes open pages after a change of the fleet. Without open pages it costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.msgpack import encode

from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.incident import all_incidents
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.model.instant import Instant

# Seconds between two looks for a change, and after which pages are woken without one, to show current ages.
PERIOD = 2.0
REFRESH = 30.0


def fingerprint(planner: Planner, service: ServiceState, now: Instant) -> int:
    """Return a number that changes with the state of the fleet, and not with the time only."""
    status = fleet_status(planner, service, now)
    incidents = frozenset(
        (incident.name, incident.state, incident.health, incident.detail, incident.message)
        for incident in all_incidents(planner)
    )
    acknowledged = frozenset(name for name, decision in service.decisions.items() if decision.acknowledged)
    replica = status.replica
    obstacle = (status.obstacle.kind, status.obstacle.reason) if status.obstacle is not None else ()
    obstacles = (status.paused, status.frozen, status.policy, replica.leader, obstacle)
    counts = (status.nodes, status.agents, status.marked, status.withheld, status.budgets, status.capacity)
    drains = (service.drains, tuple(action.name for action in status.failed_drains))
    return hash((incidents, acknowledged, obstacles, encode(counts), status.degraded_domains, drains))


class ChangeFeed:
    """Wakes its subscribers after a change, and every `refresh` seconds.

    state: returns another number after a change. period: seconds between two calls of it.
    """

    def __init__(self, state: Callable[[], int], period: float = PERIOD, refresh: float = REFRESH) -> None:
        self._has_ended = False
        self._state = state
        self._period = period
        self._rounds = max(1, round(refresh / period))
        self._subscribers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of subscribers."""
        return len(self._subscribers)

    def has_ended(self) -> bool:
        """Return whether it is closed."""
        return self._has_ended

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Event]:
        """Return an event that is set after each change; the subscriber clears it."""
        event = asyncio.Event()
        self._subscribers.add(event)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            yield event
        finally:
            self._subscribers.discard(event)
            if not self._subscribers:
                self._stop()

    def close(self) -> None:
        """End all subscriptions: wake the subscribers, which see `has_ended`."""
        self._has_ended = True
        self._stop()
        self._wake()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _wake(self) -> None:
        for event in self._subscribers:
            event.set()

    async def _watch(self) -> None:
        """Wake the subscribers until none is left."""
        before, rounds = self._state(), 0
        while True:
            await asyncio.sleep(self._period)
            after, rounds = self._state(), rounds + 1
            if after != before or rounds >= self._rounds:
                before, rounds = after, 0
                self._wake()
