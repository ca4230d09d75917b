"""Correlation of Events before they are sent, with the rules and limits of client-go's EventCorrelator.

Equal Events are counted in one object, similar Events are combined, and the rate for each object is limited.
Pure: time is seconds since the epoch.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.local.rate_limiter import TokenBucket

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
    namespace empty for none. type: `Normal` or `Warning`. reason: one word in CamelCase.
    """

    name: str
    uid: str
    type: str
    reason: str
    message: str
    object_kind: str = "Node"
    api_version: str = "v1"
    namespace: str = ""


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
        before = self._counted.get(key)
        if before is not None:
            return CountedEvent(content, before.name, before.count + 1, before.first, now)
        self._last_number += 1
        name = content.name[:_MAX_NAME].rstrip(".-")
        return CountedEvent(content, f"{name}.{self._suffix}{self._last_number:x}", 1, now, now)

    def _is_within_rate(self, content: EventContent, now: float) -> bool:
        key = (content.name, content.uid)
        bucket = self._buckets.store(key, self._buckets.get(key) or TokenBucket(1.0 / REFILL_SECONDS, BURST))
        if bucket.wait(now) > 0.0:
            return False
        bucket.take(now)
        return True
