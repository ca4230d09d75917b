"""Events, as `kubectl describe` shows them: core/v1, beside what they are about; of Nodes, in `default`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError, single_line
from nodeguard.kube.event_correlator import CountedEvent, EventContent, EventCorrelator
from nodeguard.kube.fenced_client import JSON, FencedClient
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.model.instant import rfc3339

# Events of what has no namespace are only taken here.
_NOWHERE = "default"

_PATH = "/api/v1/namespaces/{}/events"
PATH = _PATH.format(_NOWHERE)

_SOURCE = "nodeguard"

# Characters of a message, as many as the API takes.
_LONGEST = 1024

# How many may wait, and for how many seconds: what is older is not worth a write.
_MOST = 1000
_OLDEST = 600.0


class EventRecorder:
    """Sends Events. lane: where they wait. pod: name of who says it. wall: seconds since the epoch."""

    def __init__(
        self,
        permit: FencedClient,
        lane: WriteQueue,
        pod: str,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._permit = permit
        self._lane = lane
        self._pod = pod
        self._wall = wall
        self._filter = EventCorrelator(f"{int(wall() * 1e6):x}")
        # Names of those that the server has, and those that wait.
        self._made: dict[str, None] = {}
        self._waiting: dict[str, None] = {}

    def record(self, said: EventContent) -> None:
        """Have an Event sent, unless too much was said of its object already."""
        counted = self._filter.correlate(said, self._wall())
        if counted is None:
            return
        self._waiting[counted.name] = None
        if len(self._waiting) > _MOST:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._lane.drop(("event", oldest))
        self._lane.put(("event", counted.name), counted, self._send)

    async def _send(self, counted: CountedEvent) -> None:
        if self._wall() - counted.last < _OLDEST:
            await (self._count(counted) if counted.name in self._made else self._make(counted))
        self._waiting.pop(counted.name, None)

    async def _make(self, counted: CountedEvent) -> None:
        try:
            await self._permit.write("POST", _path(counted), _event(counted, self._pod), JSON)
        except ApiError as error:
            if error.status != 409:
                raise
            # It was made by a request whose answer was lost.
            await self._count(counted)
        self._remember(counted.name)

    async def _count(self, counted: CountedEvent) -> None:
        message = counted.content.message[:_LONGEST]
        body = {"count": counted.count, "message": message, "lastTimestamp": rfc3339(counted.last)}
        try:
            await self._permit.write("PATCH", f"{_path(counted)}/{counted.name}", body)
        except ApiError as error:
            if error.status != 404:
                raise
            # Servers forget Events after an hour.
            await self._permit.write("POST", _path(counted), _event(counted, self._pod), JSON)

    def _remember(self, name: str) -> None:
        self._made[name] = None
        if len(self._made) > 4 * _MOST:
            del self._made[next(iter(self._made))]


def _path(counted: CountedEvent) -> str:
    return _PATH.format(counted.content.namespace or _NOWHERE)


def _event(counted: CountedEvent, pod: str) -> dict[str, Any]:
    said = counted.content
    about = {"apiVersion": said.api_version, "kind": said.object_kind, "name": said.name, "uid": said.uid}
    if said.namespace:
        about["namespace"] = said.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": counted.name, "namespace": said.namespace or _NOWHERE},
        "involvedObject": about,
        "type": said.type,
        "reason": said.reason,
        "message": said.message[:_LONGEST],
        "source": {"component": _SOURCE},
        "reportingComponent": _SOURCE,
        "reportingInstance": pod[:128],
        "firstTimestamp": rfc3339(counted.first),
        "lastTimestamp": rfc3339(counted.last),
        "count": counted.count,
    }


class _Meta(Struct):
    uid: str


class _Pod(Struct):
    metadata: _Meta


_DECODER = msgspec.json.Decoder(_Pod)


async def pod_warning(api: ApiClient, namespace: str, pod: str, reason: str, message: str) -> EventContent:
    """A warning about a pod. Raises ApiError where there is none of that name."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    try:
        uid = _DECODER.decode(await api.request("GET", path)).metadata.uid
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"the pod {pod} cannot be read: {single_line(str(error))}") from None
    return EventContent(pod, uid, "Warning", reason, message, object_kind="Pod", namespace=namespace)
