"""Reads the jobs of the few nodes that vote in the diagnosis, or that request a mark.

The diagnosis does not wait for it: a node without a reading counts as a node without a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from heapq import nlargest
from math import inf

from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetInputs, FleetView
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.node_pods import read_node_jobs

logger = logging.getLogger(__name__)

# Readings a second, and of these at once.
READS_PER_SECOND = 20
_CONCURRENT = 4

# Maximum number of nodes with jobs: those with the newest votes.
MAX_NODES = 2_048

# Seconds until a node is read again: for a newer vote, and once after each reading that followed a vote so
# closely that the kubelet may not have reported the start yet. Seconds without readings after an error.
_REREAD = 30.0
_PAUSE = 60.0

_SCAN = 1.0


class ReadingSchedule:
    """The nodes to read next. Times in seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._read_at: dict[str, float] = {}
        self._paused_until = -inf

    def update(self, wanted: Mapping[str, float]) -> tuple[str, ...]:
        """Set the nodes to read, by uid, with the time of their latest vote. Returns the uids of nodes that
        were read and are not wanted any more.
        """
        gone = tuple(uid for uid in self._read_at if uid not in wanted)
        for uid in gone:
            del self._read_at[uid]
        return gone

    def due(self, wanted: Mapping[str, float], now: float) -> list[str]:
        """Return the nodes to read within the next second, those with the newest votes first."""
        if self.is_paused(now):
            return []
        due = (
            uid
            for uid, at in wanted.items()
            if (read_at := self._read_at.get(uid, -inf)) < at + _REREAD and now - read_at >= _REREAD
        )
        return nlargest(READS_PER_SECOND, due, key=lambda uid: wanted[uid])

    def is_paused(self, now: float) -> bool:
        """Return whether no node is read now."""
        return now < self._paused_until

    def record_read(self, uid: str, now: float) -> None:
        """Record that a node was read."""
        self._read_at[uid] = now

    def record_failure(self, now: float) -> None:
        """Record that a node could not be read: none is read for a while."""
        self._paused_until = now + _PAUSE


class JobReader:
    """Reads the jobs of nodes. results: number of readings by result, `read` or `failed`. schedule: of the
    readings.
    """

    def __init__(self, api: ApiClient, fleet: FleetView, inputs: FleetInputs) -> None:
        self._api = api
        self._fleet = fleet
        self._inputs = inputs
        self.results = {"read": 0, "failed": 0}
        self.schedule = ReadingSchedule()
        self._has_failed = False

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.read_due()
            await asyncio.sleep(_SCAN)

    async def read_due(self) -> None:
        """Read the nodes that are due."""
        now = current_instant()
        nodes = self._fleet.job_nodes(now)
        wanted = {uid: nodes[uid] for uid in nlargest(MAX_NODES, nodes, key=lambda uid: nodes[uid])}
        for uid in self.schedule.update(wanted):
            self._inputs.jobs_read(uid, ())
        limit = asyncio.Semaphore(_CONCURRENT)
        async with asyncio.TaskGroup() as group:
            for uid in self.schedule.due(wanted, now.mono):
                group.create_task(self._read(uid, now.mono, limit))

    async def _read(self, uid: str, now: float, limit: asyncio.Semaphore) -> None:
        """Read one node. now: seconds of the monotonic clock."""
        node = self._fleet.node(uid)
        if node is None:
            return
        try:
            async with limit:
                if self.schedule.is_paused(now):
                    return
                jobs = await read_node_jobs(self._api, node.name)
        except ApiError as error:
            self.results["failed"] += 1
            self.schedule.record_failure(now)
            if not self._has_failed:
                logger.warning(
                    "cannot read the pods of a Node, incidents name no jobs",
                    extra={"node": node.name, "error": error.message},
                )
            self._has_failed = True
            return
        self._has_failed = False
        self.results["read"] += 1
        self.schedule.record_read(uid, now)
        self._inputs.jobs_read(uid, jobs)
