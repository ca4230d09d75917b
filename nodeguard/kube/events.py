"""Recorder of core/v1 Events, as `kubectl describe` shows them. Events of Nodes are in `default`.

Before they are sent, Events are correlated with the rules and limits of client-go's EventCorrelator: equal
Events are counted in one object, similar Events are combined, and the rate for each object is limited.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError, decoded
from nodeguard.kube.fenced_client import JSON, FencedClient
from nodeguard.kube.objects import TypedObject
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.local.rate_limiter import TokenBucket
from nodeguard.model.instant import rfc3339
from nodeguard.model.json_decoder import JsonDecoder

# For one object: Events in a burst, and seconds for each further one.
BURST = 25
REFILL_SECONDS = 300.0

# Events with one reason and different messages, before they are combined; seconds without one that end this.
MAX_SIMILAR = 10
SIMILAR_SECONDS = 600.0

# The latest objects, reasons and Events that are remembered.
_MAX_REMEMBERED = 4096

# Characters of an object's name in the name of an Event.
_MAX_NAME = 200

_COMBINED = "(combined from similar events): "

K = TypeVar("K")
V = TypeVar("V")

# Name and uid of an object, type and reason of an Event.
_GroupKey = tuple[str, str, str, str]


class EventContent(Struct, frozen=True):
    """Content of an Event. name, uid, object_kind, api_version, namespace: of the object it is about, the
    namespace empty for none. type: `Normal` or `Warning`. reason: one word in CamelCase. key: of an Event
    that several processes may send: one object is created for it. at: seconds since the epoch; 0 for now.
    """

    name: str
    uid: str
    type: str
    reason: str
    message: str
    object_kind: str = "Node"
    api_version: str = "v1"
    namespace: str = ""
    key: str = ""
    at: float = 0.0


class CountedEvent(Struct, frozen=True):
    """An Event to send. name: of the Event object, the same for equal Events. count: of equal Events. first,
    last: times of the first and the last of them.
    """

    content: EventContent
    name: str
    count: int
    first: float
    last: float


class _Group(Struct):
    messages: set[str]
    last: float


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """A mapping of the latest entries."""

    def store(self, key: K, value: V) -> V:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _MAX_REMEMBERED:
            self.popitem(last=False)
        return value


class EventCorrelator:
    """Remembers recent Events. suffix: makes the names of this process's Event objects unique."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._last_number = 0
        self._buckets: _Recent[tuple[str, str], TokenBucket] = _Recent()
        self._groups: _Recent[_GroupKey, _Group] = _Recent()
        self._counted: _Recent[EventContent | _GroupKey, CountedEvent] = _Recent()

    def correlate(self, content: EventContent, now: float) -> CountedEvent | None:
        """Return the Event to send; None if the rate limit of its object drops it."""
        group_key = (content.name, content.uid, content.type, content.reason)
        group = self._groups.get(group_key)
        if group is None or now - group.last > SIMILAR_SECONDS:
            group = _Group(set(), now)
        group.last = now
        self._groups.store(group_key, group)
        key: EventContent | _GroupKey = content
        if content.message not in group.messages and len(group.messages) >= MAX_SIMILAR:
            key, content = group_key, replace(content, message=_COMBINED + content.message)
        else:
            group.messages.add(content.message)
        counted = self._counted.store(key, self._count(key, content, now))
        return counted if self._is_within_rate(content, now) else None

    def _count(self, key: EventContent | _GroupKey, content: EventContent, now: float) -> CountedEvent:
        before, at = self._counted.get(key), content.at or now
        if before is not None:
            return CountedEvent(content, before.name, before.count + 1, before.first, at)
        self._last_number += 1
        name = content.name[:_MAX_NAME].rstrip(".-")
        return CountedEvent(
            content, f"{name}.{content.key or f'{self._suffix}{self._last_number:x}'}", 1, at, at
        )

    def _is_within_rate(self, content: EventContent, now: float) -> bool:
        key = (content.name, content.uid)
        bucket = self._buckets.store(key, self._buckets.get(key) or TokenBucket(1.0 / REFILL_SECONDS, BURST))
        if bucket.wait(now) > 0.0:
            return False
        bucket.take(now)
        return True


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
            # A request with a lost response created it, or another process.
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


_POD_DECODER = JsonDecoder(TypedObject)


async def pod_warning(api: ApiClient, namespace: str, pod: str, reason: str, message: str) -> EventContent:
    """Return a warning Event about a pod. Raises ApiError if the pod cannot be read."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    uid = decoded(_POD_DECODER.decode, await api.request("GET", path), f"the pod {pod}").uid
    return EventContent(pod, uid, "Warning", reason, message, object_kind="Pod", namespace=namespace)
