"""Which Events are sent, and as what: like ones are counted, many that differ in words become one, and who
says too much of one object is cut short. Pure: time is seconds since the epoch.

What people know from the events of a cluster's own components holds for these as well.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.local.rate_limiter import TokenBucket

# Of one object: Events at once, and seconds until one more.
BURST = 25
REFILL_SECONDS = 300.0

# Events of one reason that differ in words, before they become one; forgotten after so many seconds without.
MAX_SIMILAR = 10
SIMILAR_SECONDS = 600.0

# What is remembered: objects, reasons and Events, of each the latest.
_MOST = 4096

# Characters of an object's name in the name of an Event.
_LONGEST_NAME = 200

_COMBINED = "(combined from similar events): "

K = TypeVar("K")
V = TypeVar("V")


class EventContent(Struct, frozen=True):
    """What an Event says. name, uid: of the object that it is about; of, version: the object's kind and API;
    namespace: where it is, empty for none. kind: `Normal` or `Warning`. reason: one word in CamelCase.
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
    """An Event to be sent. name: the object's, one for like ones; count: how often; first, last: when."""

    content: EventContent
    name: str
    count: int
    first: float
    last: float


class _Group(Struct):
    messages: set[str]
    last: float


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """The latest few."""

    def keep(self, key: K, value: V) -> V:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _MOST:
            self.popitem(last=False)
        return value


class EventCorrelator:
    """Remembers what was said. suffix: of the names of this process's Events, which no other's have."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._numbers = 0
        self._buckets: _Recent[tuple[str, str], TokenBucket] = _Recent()
        self._groups: _Recent[tuple[str, str, str, str], _Group] = _Recent()
        self._counted: _Recent[EventContent | tuple[str, str, str, str], CountedEvent] = _Recent()

    def correlate(self, said: EventContent, now: float) -> CountedEvent | None:
        """What is to be sent of an Event; None for nothing."""
        like = (said.name, said.uid, said.type, said.reason)
        group = self._groups.get(like)
        if group is None or now - group.last > SIMILAR_SECONDS:
            group = _Group(set(), now)
        group.last = now
        self._groups.keep(like, group)
        key: EventContent | tuple[str, str, str, str] = said
        if said.message not in group.messages and len(group.messages) >= MAX_SIMILAR:
            key, said = like, replace(said, message=_COMBINED + said.message)
        else:
            group.messages.add(said.message)
        counted = self._counted.keep(key, self._count(key, said, now))
        return counted if self._is_let_through(said, now) else None

    def _count(
        self, key: EventContent | tuple[str, str, str, str], said: EventContent, now: float
    ) -> CountedEvent:
        had = self._counted.get(key)
        if had is not None:
            return CountedEvent(said, had.name, had.count + 1, had.first, now)
        self._numbers += 1
        name = said.name[:_LONGEST_NAME].rstrip(".-")
        return CountedEvent(said, f"{name}.{self._suffix}{self._numbers:x}", 1, now, now)

    def _is_let_through(self, said: EventContent, now: float) -> bool:
        of = (said.name, said.uid)
        bucket = self._buckets.keep(of, self._buckets.get(of) or TokenBucket(1.0 / REFILL_SECONDS, BURST))
        if bucket.wait(now) > 0.0:
            return False
        bucket.take(now)
        return True
