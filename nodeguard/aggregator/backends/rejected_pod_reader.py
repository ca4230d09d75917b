"""Reads the pods that the kubelets of the few nodes with an open fatal incident rejected.

They support a fault that is known already: nothing is decided by them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from heapq import nlargest
from math import inf

from msgspec import Struct

from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetView
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.rejected_pods import NodeBoot, read_node_boot, read_rejected_pods
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant
from nodeguard.model.pod import RejectedPods

logger = logging.getLogger(__name__)

# Nodes that are read: those with the newest incidents. Of these in one scan, and seconds between two scans.
MAX_NODES = 64
_SCANNED = 8
_SCAN = 5.0

# Seconds between two readings of a node, doubled from the first to the last. Without readings after an error.
_FIRST_WAIT = 15.0
_LAST_WAIT = 600.0
_PAUSE = 60.0


class CountedBoot(Struct, frozen=True):
    """The boot of a node, and since when its rejected pods count, in seconds since the epoch; None while they
    do not.
    """

    boot_id: str
    since: float | None


class _Schedule(Struct):
    due_at: float = -inf
    wait: float = 0.0
    boot: CountedBoot | None = None


def fatal_nodes(incidents: Iterable[Incident]) -> dict[str, float]:
    """Return the nodes with open fatal incidents, by uid, with the time at which the first of these began, in
    seconds since the epoch. No injected fault counts.
    """
    nodes = dict[str, float]()
    for incident in incidents:
        is_fatal = incident.is_open and incident.health == Health.FATAL and not incident.injected
        if is_fatal and incident.node and incident.uid:
            nodes[incident.uid] = min(incident.first_seen, nodes.get(incident.uid, inf))
    return nodes


def follow_boot(before: CountedBoot | None, boot: NodeBoot, began: float, now: float) -> CountedBoot:
    """Return the boot of a node, as it was read, with the time since when rejected pods count. began: when
    the fault did. now: both in seconds since the epoch.

    After a reboot the kubelet rejects pods until the device plugin has started, whatever the GPUs: they count
    again from the first reading with an allocatable GPU.
    """
    if before is None:
        return CountedBoot(boot.boot_id, began)
    if before.boot_id == boot.boot_id and before.since is not None:
        return before
    return CountedBoot(boot.boot_id, now if boot.gpus else None)


class RejectedPodReader:
    """Reads the rejected pods of nodes. pods: by uid of the Node, of nodes that have any."""

    def __init__(
        self, api: ApiClient, fleet: FleetView, *, now: Callable[[], Instant] = current_instant
    ) -> None:
        self._api = api
        self._fleet = fleet
        self._now = now
        self._schedules: dict[str, _Schedule] = {}
        self._paused_until = -inf
        self._has_failed = False
        self.pods: dict[str, RejectedPods] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.read_due()
            await asyncio.sleep(_SCAN)

    async def read_due(self) -> None:
        """Read the nodes that are due."""
        now, began = self._now(), fatal_nodes(self._fleet.all_incidents())
        selected = nlargest(MAX_NODES, began, key=lambda uid: began[uid])
        self._schedules = {uid: self._schedules.get(uid) or _Schedule() for uid in selected}
        self.pods = {uid: pods for uid, pods in self.pods.items() if uid in self._schedules}
        due = [uid for uid, schedule in self._schedules.items() if schedule.due_at <= now.mono]
        for uid in due[:_SCANNED] if now.mono >= self._paused_until else ():
            schedule = self._schedules[uid]
            schedule.wait = min(_LAST_WAIT, 2.0 * schedule.wait or _FIRST_WAIT)
            schedule.due_at = now.mono + schedule.wait
            try:
                await self._read(uid, schedule, began[uid])
            except ApiError as error:
                if not self._has_failed:
                    logger.warning("cannot read the rejected pods of a Node", extra={"error": error.message})
                self._has_failed, self._paused_until = True, now.mono + _PAUSE
                return
            self._has_failed = False

    async def _read(self, uid: str, schedule: _Schedule, began: float) -> None:
        """Read one node. began: when its fault did. Raises ApiError."""
        node = self._fleet.node(uid)
        if node is None:
            return
        boot = await read_node_boot(self._api, node.name)
        schedule.boot = follow_boot(schedule.boot, boot, began, self._now().wall)
        since = schedule.boot.since
        pods = None if since is None else await read_rejected_pods(self._api, node.name, since)
        if pods is not None and pods.count:
            self.pods[uid] = pods
        else:
            self.pods.pop(uid, None)
