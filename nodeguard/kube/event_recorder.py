"""Recorder of core/v1 Events, as `kubectl describe` shows them. Events of Nodes are in `default`."""

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

# The API accepts Events of cluster-scoped objects only in this namespace.
_CLUSTER_NAMESPACE = "default"

_PATH = "/api/v1/namespaces/{}/events"
PATH = _PATH.format(_CLUSTER_NAMESPACE)

_SOURCE = "nodeguard"

# Characters of a message that the API accepts.
_MAX_MESSAGE = 1024

# Events that may wait, and seconds after which one is too old to be worth a write.
_MAX_PENDING = 1000
_MAX_AGE = 600.0


class EventRecorder:
    """Sends Events. queue: where they wait. pod: name of the reporting pod. wall: seconds since the epoch."""

    def __init__(
        self,
        client: FencedClient,
        queue: WriteQueue,
        pod: str,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._queue = queue
        self._pod = pod
        self._wall = wall
        self._correlator = EventCorrelator(f"{int(wall() * 1e6):x}")
        # Names of Events that the server has, and of those that wait.
        self._created: dict[str, None] = {}
        self._pending: dict[str, None] = {}

    def record(self, content: EventContent) -> None:
        """Queue an Event, unless the rate limit of its object drops it."""
        counted = self._correlator.correlate(content, self._wall())
        if counted is None:
            return
        self._pending[counted.name] = None
        if len(self._pending) > _MAX_PENDING:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            self._queue.drop(("event", oldest))
        self._queue.put(("event", counted.name), counted, self._send)

    async def _send(self, counted: CountedEvent) -> None:
        if self._wall() - counted.last < _MAX_AGE:
            await (self._update(counted) if counted.name in self._created else self._create(counted))
        self._pending.pop(counted.name, None)

    async def _create(self, counted: CountedEvent) -> None:
        try:
            await self._client.write("POST", _path(counted), _body(counted, self._pod), JSON)
        except ApiError as error:
            if error.status != 409:
                raise
            # A request with a lost response created it.
            await self._update(counted)
        self._remember(counted.name)

    async def _update(self, counted: CountedEvent) -> None:
        message = counted.content.message[:_MAX_MESSAGE]
        body = {"count": counted.count, "message": message, "lastTimestamp": rfc3339(counted.last)}
        try:
            await self._client.write("PATCH", f"{_path(counted)}/{counted.name}", body)
        except ApiError as error:
            if error.status != 404:
                raise
            # Servers delete Events after an hour.
            await self._client.write("POST", _path(counted), _body(counted, self._pod), JSON)

    def _remember(self, name: str) -> None:
        self._created[name] = None
        if len(self._created) > 4 * _MAX_PENDING:
            del self._created[next(iter(self._created))]


def _path(counted: CountedEvent) -> str:
    return _PATH.format(counted.content.namespace or _CLUSTER_NAMESPACE)


def _body(counted: CountedEvent, pod: str) -> dict[str, Any]:
    content = counted.content
    involved_object = {
        "apiVersion": content.api_version,
        "kind": content.object_kind,
        "name": content.name,
        "uid": content.uid,
    }
    if content.namespace:
        involved_object["namespace"] = content.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": counted.name, "namespace": content.namespace or _CLUSTER_NAMESPACE},
        "involvedObject": involved_object,
        "type": content.type,
        "reason": content.reason,
        "message": content.message[:_MAX_MESSAGE],
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


_POD_DECODER = msgspec.json.Decoder(_Pod)


async def pod_warning(api: ApiClient, namespace: str, pod: str, reason: str, message: str) -> EventContent:
    """Return a warning Event about a pod. Raises ApiError if the pod cannot be read."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    try:
        uid = _POD_DECODER.decode(await api.request("GET", path)).metadata.uid
    except msgspec.MsgspecError as error:
        problem = f"the pod {pod} could not be read: {single_line(str(error))}"
        raise ApiError(0, "Unreadable", problem) from None
    return EventContent(pod, uid, "Warning", reason, message, object_kind="Pod", namespace=namespace)
