"""How much agents may ask for, and of whom. Pure: time is seconds of a clock that never jumps."""

from __future__ import annotations

import math
from collections import OrderedDict

from msgspec import Struct

# A message costs one, and one more for each so many bytes that it has.
_SHARE = 16 * 1024


class Rate(Struct, frozen=True):
    """So many at once, and so many a second for good."""

    burst: float
    per_second: float


class IngestLimits(Struct, frozen=True):
    """What the server gives to agents. An agent that sends what waited may send 64 messages at once.

    connections: open at a time. connections_of_caller: of one node, whose agent has one for each address by
    which it reaches this aggregator. strangers: of them, those whose caller has not said yet who it is; with
    one more, who has waited longest gives way. strangers_of_one: of one address. head, body, idle: seconds
    for the handshake and for a request's head, for the rest of it, and between two. bodies: bytes of large
    messages that are being read at a time. connection, node: messages; failures: callers of one address that
    are not let in.
    """

    connections: int = 20_000
    connections_per_node: int = 4
    unauthenticated: int = 1024
    unauthenticated_per_address: int = 128
    header_timeout: float = 10.0
    body_timeout: float = 10.0
    idle_timeout: float = 60.0
    body_bytes: int = 64 * 1024 * 1024
    connection_rate: Rate = Rate(100.0, 5.0)
    node_rate: Rate = Rate(200.0, 5.0)
    failure_rate: Rate = Rate(20.0, 0.2)


class Bucket:
    """Tokens that come back at a rate; full at first."""

    __slots__ = ("_at", "_level")

    def __init__(self, rate: Rate, now: float) -> None:
        self._level, self._at = rate.burst, now

    def take(self, rate: Rate, now: float, cost: float = 1.0) -> float:
        """Take tokens. Returns 0 where there were enough, else seconds until there are; none are taken then.

        What costs more than there ever are is given for all that there are.
        """
        level = min(rate.burst, self._level + max(0.0, now - self._at) * rate.per_second)
        self._level, self._at = level, now
        cost = min(cost, rate.burst)
        if level >= cost:
            self._level = level - cost
            return 0.0
        return (cost - level) / rate.per_second

    def give_back(self) -> None:
        """Put back a token that was taken for nothing."""
        self._level += 1.0


class Buckets:
    """A bucket for each name, the latest used; what is forgotten is a full one again."""

    def __init__(self, rate: Rate, most: int) -> None:
        self._rate, self._most = rate, most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, name: str, now: float, cost: float = 1.0) -> float:
        """As Bucket.take."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(self._rate, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return bucket.take(self._rate, now, cost)

    def give_back(self, name: str) -> None:
        """As Bucket.give_back."""
        if (bucket := self._buckets.get(name)) is not None:
            bucket.give_back()


def cost(size: int) -> float:
    """What a message of so many bytes costs."""
    return 1.0 + size // _SHARE


def retry_after(seconds: float) -> str:
    """Seconds as HTTP's Retry-After has them: whole ones, one at least."""
    return str(max(1, math.ceil(min(seconds, 3600.0))))
